"""Training in real processes: the same bits in all of them, nothing lost, every byte counted."""

import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from gloo_processes import spawned
from torch import Tensor, nn

from pcr_exp.config.components import schemas
from pcr_exp.config.gradients import GradientsConfig
from pcr_exp.config.network import NetworkConfig
from pcr_exp.config.training import TrainingConfig
from pcr_exp.errors import ConfigError
from pcr_exp.gradients.codec import open_codec
from pcr_exp.gradients.tensors import TensorCodec
from pcr_exp.training.distributed.open import open_exchange
from pcr_exp.training.distributed.parameter_server import ServerExchange
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.distributed.wire import Link, Wire
from pcr_exp.training.normalization import model_input
from pcr_exp.training.trainer import Trainer

CPU = torch.device("cpu")
NUM_STEPS = 6
RATE = 0.05
DDP = ("none", "fp16", "bf16", "powersgd", "threelc", "ternary_stochastic", "onebit", "topk", "int8")
SERVER = tuple(name for name in DDP if name != "powersgd")
WAYS = [*((name, "ddp") for name in DDP), *((name, "server") for name in SERVER)]


def settings(name: str, mode: str, **changes: Any) -> GradientsConfig:
    config: GradientsConfig = schemas("gradients")[name](name=name, mode=mode, min_values=16, **changes)
    return config


def small_model(norm: bool = True) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(288, 20),
        nn.Linear(20, 5),
    )


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    images = torch.randint(256, (4, 8, 8, 3), dtype=torch.uint8, generator=generator)
    return images, torch.randint(5, (4,), generator=generator)


def trainer_of(processes: Processes, gradients: GradientsConfig, norm: bool = True) -> Trainer:
    config = TrainingConfig(epochs=1, batch_size=4, image_size=8, eval_image_size=8, learning_rate=RATE)
    exchange = open_exchange(gradients, NetworkConfig(), processes, seed=0)
    return Trainer(small_model(norm), config, device=CPU, seed=0, exchange=exchange)


def steps(trainer: Trainer, processes: Processes, which: range) -> list[float]:
    return [trainer.update(*batch(s, processes.rank), step=s, learning_rate=RATE) for s in which]


def threelc() -> TensorCodec:
    return TensorCodec(lambda _: open_codec(settings("threelc", "ddp"), seed=0), min_values=16)


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def global_weights(trainer: Trainer) -> dict[str, Tensor]:
    with trainer.exchange.global_weights():
        return weights(trainer)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# In every process: all ways, without and with an interruption.


def train_all_ways(processes: Processes) -> dict[tuple[str, str], dict[str, Any]]:
    results = {}
    for way in WAYS:
        whole = trainer_of(processes, settings(*way))
        losses = steps(whole, processes, range(NUM_STEPS))
        first = trainer_of(processes, settings(*way))
        early = steps(first, processes, range(NUM_STEPS // 2))
        resumed = trainer_of(processes, settings(*way))
        resumed.load_state_dict(first.state_dict())
        late = steps(resumed, processes, range(NUM_STEPS // 2, NUM_STEPS))
        plain = trainer_of(processes, settings(*way), norm=False)
        steps(plain, processes, range(NUM_STEPS))
        traffic = whole.exchange.traffic
        assert traffic is not None
        results[way] = {
            "weights": weights(whole),
            "global": global_weights(whole),
            "losses": losses,
            "resumed_losses": early + late,
            "resumed": weights(resumed),
            "resumed_global": global_weights(resumed),
            "plain": global_weights(plain),
            "traffic": traffic,
            "resumed_traffic": resumed.exchange.traffic,
            "left_out": (whole.exchange.state_dict().get("server") or {}).get("pulls"),
        }
    return results


@pytest.fixture(scope="module")
def two() -> list[dict[tuple[str, str], dict[str, Any]]]:
    return spawned(train_all_ways, 2)


every_way = pytest.mark.parametrize("way", WAYS, ids=["-".join(way) for way in WAYS])


@every_way
def test_replicas_are_the_same_bits(way: tuple[str, str], two: Any) -> None:
    assert same(two[0][way]["weights"], two[1][way]["weights"])
    assert two[0][way]["losses"] == two[1][way]["losses"]
    assert not same(two[0][way]["weights"], dict(small_model().named_parameters()))


@every_way
def test_a_resumed_run_ends_with_the_same_bits(way: tuple[str, str], two: Any) -> None:
    for rank in (0, 1):
        result = two[rank][way]
        assert result["resumed_losses"] == result["losses"]
        assert same(result["resumed"], result["weights"])
        assert same(result["resumed_global"], result["global"])
        assert result["resumed_traffic"] == result["traffic"]


def one_process_on_both_batches() -> dict[str, Tensor]:
    model = small_model(norm=False)
    sgd = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4)
    for step in range(NUM_STEPS):
        batches = [batch(step, rank) for rank in (0, 1)]
        images = model_input(torch.cat([b[0] for b in batches]), CPU, channels_last=False)
        sgd.zero_grad()
        F.cross_entropy(model(images), torch.cat([b[1] for b in batches])).backward()
        sgd.step()
    return dict(model.named_parameters())


@pytest.mark.parametrize(
    ("way", "tolerance"),
    [
        (("none", "ddp"), 1e-5),
        (("none", "server"), 1e-5),
        (("bf16", "ddp"), 1e-2),
        (("fp16", "ddp"), 1e-3),
        (("fp16", "server"), 1e-3),
        (("int8", "ddp"), 1e-2),
    ],
)
def test_precise_ways_train_as_one_process_does(way: tuple[str, str], tolerance: float, two: Any) -> None:
    for name, wanted in one_process_on_both_batches().items():
        torch.testing.assert_close(two[0][way]["plain"][name], wanted.detach(), rtol=0, atol=tolerance)


def test_the_hook_averages_what_3lc_decodes(two: Any) -> None:
    """Step by step in this process, from the codec alone: buckets and names are the hook's affair."""
    model = small_model(norm=False)
    sgd = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4)
    codecs = [threelc(), threelc()]
    for step in range(NUM_STEPS):
        sent = []
        for rank, codec in enumerate(codecs):
            images, labels = batch(step, rank)
            model.zero_grad()
            # As the trainer keeps them, so that convolutions round alike.
            ordered = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            F.cross_entropy(ordered(model_input(images, CPU, channels_last=True)), labels).backward()
            named = [(n, p.grad.clone()) for n, p in model.named_parameters() if p.grad is not None]
            sent.append(codec.encode(named)[1])
        for parameter, mine, other in zip(model.parameters(), *sent, strict=True):
            parameter.grad = (mine + other) / 2
        sgd.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(two[0]["threelc", "ddp"]["plain"][name], parameter.detach())


@pytest.mark.parametrize("name", ["threelc", "onebit", "topk"])
def test_workers_lack_of_the_server_what_its_messages_left_out(name: str, two: Any) -> None:
    result = two[0][name, "server"]
    assert result["left_out"].keys() == {"0.weight", "4.weight", "5.weight"}
    for parameter, worker in result["weights"].items():
        lack = result["global"][parameter] - worker
        residual = result["left_out"].get(parameter, {"residual": torch.zeros(lack.numel())})["residual"]
        torch.testing.assert_close(lack.flatten(), residual, rtol=0, atol=1e-6)
        if parameter in result["left_out"]:
            assert lack.abs().max() > 1e-4


@every_way
def test_traffic(way: tuple[str, str], two: Any) -> None:
    name, mode = way
    num_values = sum(p.numel() for p in small_model().parameters())
    one, other = two[0][way]["traffic"], two[1][way]["traffic"]
    for traffic in (one, other):
        assert traffic.pushed_values == NUM_STEPS * num_values
        assert traffic.pulled_values == (NUM_STEPS * num_values if mode == "server" else 0)
        summed = mode == "ddp" and name in ("none", "fp16", "bf16")  # all values in one type
        num_plain = 0 if summed else NUM_STEPS * (2 * 8 + 20 + 5)
        assert traffic.pushed_plain_values == num_plain
        assert traffic.pulled_plain_values == (num_plain if mode == "server" else 0)
    assert one.bytes_sent == other.bytes_received
    assert other.bytes_sent == one.bytes_received
    if name == "none" and mode == "ddp":
        # A ring of two: half of the values out and half back, twice.
        assert one.bytes_sent == one.pushed_bytes == NUM_STEPS * num_values * 4
    if mode == "server":
        assert other.bytes_sent == other.pushed_bytes + 8 * NUM_STEPS
        assert one.bytes_sent == one.pulled_bytes + 8 * NUM_STEPS == other.pulled_bytes + 8 * NUM_STEPS
    bits = 8 * one.pushed_bytes / one.pushed_values
    most = {"none": 32.2, "fp16": 16.2, "bf16": 16.2, "powersgd": 8, "int8": 8.7, "topk": 10, "onebit": 2}
    assert bits <= most.get(name, 2.6)


# Messages.


def talk(processes: Processes) -> dict[str, Any]:
    waits: list[float] = []
    clock = [0.0]

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    rank = processes.rank
    network = NetworkConfig(name="slow", bandwidth_mbit_per_s=8, latency_ms=10)
    wire = Wire(Link(network, now=lambda: clock[0], sleep=sleep))
    results: dict[str, Any] = {}
    for size in (0, 1, 1000):
        message = torch.full((size * (rank + 1),), rank, dtype=torch.uint8)
        results[f"gathered {size}"] = [other.tolist() for other in wire.all_gather(message)]
    results["gathering_s"], results["gathering"] = list(waits), wire.state_dict()
    waits.clear()
    wire.load_state_dict({"traffic": {"bytes_sent": 0}, "waited_s": 0.0})
    results["pushed"] = [len(m) for m in wire.push(torch.zeros(992 * (rank + 1), dtype=torch.uint8))]
    results["pulled"] = len(wire.pull(torch.zeros(492, dtype=torch.uint8) if rank == 0 else None))
    results["server_s"], results["server"] = list(waits), wire.state_dict()
    waits.clear()
    results["sum"] = wire.all_reduce(torch.full((7,), float(rank + 1))).tolist()
    results["sum_s"] = list(waits)
    results["any"] = processes.any(rank == 2), processes.any(False)
    results["mean"] = processes.mean(float(rank))
    results["first"] = processes.from_first(lambda: f"made by {rank}")
    results["states"] = processes.gather({"rank": rank})
    return results


def test_messages_of_three_processes() -> None:
    results = spawned(talk, 3)
    for rank, result in enumerate(results):
        for size in (0, 1, 1000):
            assert result[f"gathered {size}"] == [[other] * (size * (other + 1)) for other in range(3)]
        # Each of two receivers gets the message and eight bytes; 8 Mbit/s are a byte per microsecond.
        sizes = [2 * (8 + size * (rank + 1)) for size in (0, 1, 1000)]
        assert result["gathering_s"] == pytest.approx([0.01 + size * 1e-6 for size in sizes])
        assert result["gathering"]["traffic"]["bytes_sent"] == sum(sizes)
        others = sum(other + 1 for other in range(3) if other != rank)
        assert result["gathering"]["traffic"]["bytes_received"] == 3 * 2 * 8 + others * 1001
        assert result["gathering"]["waited_s"] == pytest.approx(sum(result["gathering_s"]))
        assert result["pushed"] == ([992, 1984, 2976] if rank == 0 else [])
        assert result["pulled"] == 492
        traffic = result["server"]["traffic"]
        assert traffic["bytes_sent"] == (2 * 500 if rank == 0 else 992 * (rank + 1) + 8)
        assert traffic["bytes_received"] == (1992 + 2984 if rank == 0 else 500)
        # At the server the shorter message queues behind the longer.
        waits = [1992e-6, 0.01 + 1000e-6] if rank == 0 else [0.01 + traffic["bytes_sent"] * 1e-6]
        assert result["server_s"] == pytest.approx(waits)
        assert result["sum"] == [6.0] * 7
        assert result["sum_s"] == pytest.approx([4 * 0.01 + (4 * 28 // 3) * 1e-6])
        assert result["any"] == (True, False)
        assert result["mean"] == 1.0
        assert result["first"] == "made by 0"
        assert result["states"] == ([{"rank": other} for other in range(3)] if rank == 0 else [])


def test_a_late_wake_up_is_not_the_networks_doing() -> None:
    clock = [0.0]

    def oversleep(seconds: float) -> None:
        clock[0] += seconds + 0.003

    link = Link(NetworkConfig(bandwidth_mbit_per_s=8), now=lambda: clock[0], sleep=oversleep)
    for _ in range(100):
        link.send(10_000)
    assert clock[0] == pytest.approx(100 * 0.01, abs=0.004)
    assert link.waited_s == pytest.approx(1.0)


def test_an_unlimited_link_never_waits() -> None:
    link = Link(NetworkConfig(), sleep=lambda _: pytest.fail("slept"))
    link.send(10**12)
    link.queue(10**12)
    assert link.waited_s == 0


# What goes wrong.


def poison(processes: Processes) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for mode in ("ddp", "server"):
        trainer = trainer_of(processes, settings("threelc", mode))
        steps(trainer, processes, range(2))
        before = weights(trainer)
        with torch.no_grad():
            bias: Tensor = trainer.model[5].bias  # type: ignore[index, assignment]
            kept = bias.clone()
            if processes.rank == 1:
                bias[0] = math.nan
            loss = steps(trainer, processes, range(2, 3))[0]
            bias.copy_(kept)
        results[f"{mode} loss"] = loss
        results[f"{mode} unmoved"] = same(before, weights(trainer))
        first: Tensor = trainer.model[0].weight  # type: ignore[index, assignment]
        handle = first.register_hook(lambda g: g * math.inf if processes.rank == 1 else g)
        steps(trainer, processes, range(3, 4))
        handle.remove()
        results[f"{mode} seen"] = bool(first.isnan().all())
        state = trainer.exchange.state_dict()
        kept_back = state["averaging"] if mode == "ddp" else state["push"]
        results[f"{mode} residuals"] = all(bool(s["residual"].isfinite().all()) for s in kept_back.values())
    return results


@pytest.mark.parametrize("mode", ["ddp", "server"])
def test_one_process_that_diverges_is_seen_by_all_and_poisons_no_residual(mode: str, poisoned: Any) -> None:
    for result in poisoned:
        assert math.isnan(result[f"{mode} loss"])
        assert result[f"{mode} unmoved"]
        assert result[f"{mode} seen"]
        assert result[f"{mode} residuals"]


@pytest.fixture(scope="module")
def poisoned() -> list[dict[str, Any]]:
    return spawned(poison, 2)


def test_a_server_refuses_a_model_with_idle_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    exchange = ServerExchange(Processes(0, 2), Wire(Link(NetworkConfig())), threelc(), threelc())
    exchange.attach(small_model())
    with pytest.raises(ConfigError, match=r"gradients\.mode=server: the model's parameter 0\.weight gets no"):
        exchange.step(lambda: None)


# Several batches of each process in an update.


def in_parts(trainer: Trainer, slots: range, which: range, *, same_images: bool = False) -> list[list[float]]:
    return [
        [
            trainer.update(
                *batch(s, 0 if same_images else slot),
                step=s,
                learning_rate=RATE,
                slot=slot,
                part=part,
                num_parts=len(slots),
            )
            for part, slot in enumerate(slots)
        ]
        for s in which
    ]


def train_in_parts(processes: Processes) -> dict[str, Any]:
    per_process = 4 // processes.world_size
    slots = range(processes.rank * per_process, (processes.rank + 1) * per_process)
    trainer = trainer_of(processes, GradientsConfig(), norm=False)
    losses = in_parts(trainer, slots, range(NUM_STEPS))
    traffic = trainer.exchange.traffic

    def with_dropout() -> Trainer:
        trained = trainer_of(processes, GradientsConfig(), norm=False)
        trained.model.insert(4, nn.Dropout(0.5))  # type: ignore[operator]
        return trained

    first, resumed = with_dropout(), with_dropout()
    dropped = in_parts(first, slots, range(2), same_images=True)
    state = first.state_dict()
    resumed.load_state_dict({**state, "exchange": {}})
    return {
        "weights": weights(trainer),
        "losses": [step[-1] for step in losses],
        "values": traffic.pushed_values if traffic else 0,
        "dropped": dropped[0][:-1],
        "next": in_parts(first, slots, range(2, 3), same_images=True),
        "resumed_next": in_parts(resumed, slots, range(2, 3), same_images=True),
    }


def test_an_update_is_the_same_of_any_number_of_processes() -> None:
    """Four batches an update, of one process or two; gradients are sent once, not with every batch."""
    alone = train_in_parts(Processes())
    both = spawned(train_in_parts, 2)
    for one in both:
        for name, value in alone["weights"].items():
            torch.testing.assert_close(one["weights"][name], value, rtol=1e-4, atol=1e-6)
        assert one["losses"] == pytest.approx(alone["losses"], rel=1e-4)
        assert one["values"] == NUM_STEPS * sum(value.numel() for value in alone["weights"].values())
        assert one["next"] == one["resumed_next"]
    first_losses = [*alone["dropped"], *(loss for one in both for loss in one["dropped"])]
    assert len(set(alone["dropped"])) == 3, "the same images; dropout differs between the slots"
    assert first_losses[0] == first_losses[3], "and not with the process that the slot is in"
    assert first_losses[2] == first_losses[4]
