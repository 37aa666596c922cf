"""Training in real processes: replicas are bit-identical, nothing is lost, and every byte is counted."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from distributed_trainers import (
    CPU,
    NUM_STEPS,
    RATE,
    WAYS,
    batch,
    global_weights,
    same,
    settings,
    small_model,
    steps,
    threelc,
    trainer_of,
    weights,
)
from gloo_processes import spawned
from torch import Tensor

from pcr_exp.config.related_methods import NetworkConfig
from pcr_exp.errors import ConfigError
from pcr_exp.training.distributed.ddp import PowerSGD
from pcr_exp.training.distributed.exchange import Link, Traffic, Wire
from pcr_exp.training.distributed.parameter_server import ServerExchange
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.inputs import model_input
from pcr_exp.training.trainer import Trainer

# Run in every process: all ways of exchange, with and without an interruption.


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
    """The reference uses the codec alone, in this process; only the hook maps buckets to names."""
    model = small_model(norm=False)
    sgd = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4)
    codecs = [threelc(), threelc()]
    for step in range(NUM_STEPS):
        sent = []
        for rank, codec in enumerate(codecs):
            images, labels = batch(step, rank)
            model.zero_grad()
            # Channels last as in the trainer, so that convolutions round alike.
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
        summed = mode == "ddp" and name in ("none", "fp16", "bf16")  # all values have one dtype
        num_plain = 0 if summed else NUM_STEPS * (2 * 8 + 20 + 5)
        assert traffic.pushed_plain_values == num_plain
        assert traffic.pulled_plain_values == (num_plain if mode == "server" else 0)
    assert one.bytes_sent == other.bytes_received
    assert other.bytes_sent == one.bytes_received
    if name == "none" and mode == "ddp":
        # A ring all-reduce of two processes sends half of the values, twice.
        assert one.bytes_sent == one.pushed_bytes == NUM_STEPS * num_values * 4
    if mode == "server":
        assert other.bytes_sent == other.pushed_bytes + 8 * NUM_STEPS
        assert one.bytes_sent == one.pulled_bytes + 8 * NUM_STEPS == other.pulled_bytes + 8 * NUM_STEPS
    bits = 8 * one.pushed_bytes / one.pushed_values
    most = {"none": 32.2, "fp16": 16.2, "bf16": 16.2, "powersgd": 8, "int8": 8.7, "topk": 10, "onebit": 2}
    assert bits <= most.get(name, 2.6)


# Failures.


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


def overflow(processes: Processes) -> dict[str, Any]:
    """Train in float16, as on a GPU without bfloat16, with a loss scale that the first updates overflow."""
    results: dict[str, Any] = {}
    for mode in ("ddp", "server"):
        trainer = trainer_of(processes, settings("none", mode))
        trainer.amp_dtype = torch.float16
        trainer.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22)
        first = processes.rank
        images, labels = batch(0, first)
        losses = [trainer.update(images, labels, step=s, learning_rate=RATE) for s in range(12)]
        results[mode] = losses, trainer.scaler.get_scale()
    return results


def test_an_overflow_lowers_the_loss_scale_of_all_processes() -> None:
    one, other = spawned(overflow, 2)
    for mode in ("ddp", "server"):
        losses, scale = one[mode]
        assert other[mode] == (losses, scale)
        assert losses[0] == losses[1] > 2 * losses[-1] and scale < 2**22
    assert one["server"] == (pytest.approx(one["ddp"][0], rel=1e-3), one["ddp"][1])


def train_with_idle_parameter(processes: Processes) -> dict[str, Any]:
    """Train a model with a parameter that its loss does not use: first as it is, then frozen."""
    results: dict[str, Any] = {}
    for mode in ("ddp", "server"):
        idle, frozen = (torch.nn.Parameter(torch.ones(3), requires_grad) for requires_grad in (True, False))
        trainer = with_parameter(processes, mode, idle)
        before = weights(trainer)
        with pytest.raises(ConfigError) as refused:
            steps(trainer, processes, range(1))
        results[f"{mode} refused"] = str(refused.value), same(before, weights(trainer))
        trainer = with_parameter(processes, mode, frozen)
        steps(trainer, processes, range(2))
        results[f"{mode} frozen"] = weights(trainer)
    return results


def with_parameter(processes: Processes, mode: str, parameter: torch.nn.Parameter) -> Trainer:
    model = small_model()
    model.register_parameter("idle", parameter)
    return trainer_of(processes, settings("none", mode), model=model)


def test_a_parameter_without_gradient_is_refused_before_a_step_and_may_be_frozen() -> None:
    one, other = spawned(train_with_idle_parameter, 2)
    for mode in ("ddp", "server"):
        for result in (one, other):
            message, unmoved = result[f"{mode} refused"]
            assert unmoved
            assert message.startswith(f"gradients.mode={mode}: the model's parameter idle gets no gradient.")
            assert "Freeze the parameter in the model (requires_grad=False)" in message
        assert same(one[f"{mode} frozen"], other[f"{mode} frozen"])
        assert not torch.equal(one[f"{mode} frozen"]["0.weight"], small_model().get_parameter("0.weight"))


def test_a_server_refuses_a_model_with_idle_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "get_backend_config", lambda: "gloo")
    exchange = ServerExchange(Processes(0, 2), Wire(Link(NetworkConfig())), threelc(), threelc())
    exchange.attach(small_model())
    with pytest.raises(ConfigError, match=r"gradients\.mode=server: the model's parameter 0\.weight gets no"):
        exchange.step(lambda: None)


# PowerSGD in a single process, which hears nobody else.


def powersgd_after_one_update() -> tuple[PowerSGD, Tensor]:
    """Return it with the gradient of its one weight."""
    alone = SimpleNamespace(world_size=1, traffic=Traffic(), all_reduce=lambda values: values)
    averaging = PowerSGD(alone, rank=1, min_values=1)  # type: ignore[arg-type]
    gradient = torch.randn(12, 20, generator=torch.Generator().manual_seed(0))
    averaging.average([("weight", gradient)])
    return averaging, gradient


def test_powersgd_begins_with_its_last_factor() -> None:
    averaging, gradient = powersgd_after_one_update()
    state = averaging.state_dict()
    matrix = gradient + state["residuals"]["weight"]
    (mean,) = averaging.average([("weight", gradient)])

    def mean_from(factor: Tensor) -> Tensor:
        basis = torch.linalg.qr(matrix @ factor)[0]
        return basis @ (matrix.T @ basis).T

    torch.testing.assert_close(mean, mean_from(state["factors"]["weight"]))
    fresh = torch.randn(20, 1, generator=torch.Generator().manual_seed(sum(b"weight")))
    assert not torch.allclose(mean, mean_from(fresh))


def test_a_bad_update_changes_nothing_that_powersgd_carries_over() -> None:
    averaging, gradient = powersgd_after_one_update()
    before = averaging.state_dict()
    (mean,) = averaging.average([("weight", gradient * math.nan)])
    assert mean.isnan().any()
    after = averaging.state_dict()
    for kind in ("residuals", "factors"):
        assert torch.equal(after[kind]["weight"], before[kind]["weight"])
