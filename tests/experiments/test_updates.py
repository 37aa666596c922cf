"""Time and memory of updates, on the CPU and with a simulated memory limit."""

import pytest
import torch
import torch.distributed as dist
from composing import compose

from experiments.comet import updates
from experiments.comet.updates import largest, largest_batch, measure_all_reduce, measure_updates, settings_of
from pcr_exp.errors import RunError

CPU = torch.device("cpu")
TINY = ["model=shufflenet_v2_x0_5", "training.image_size=64", "training.batch_size=4", "training.amp=false"]


@pytest.mark.parametrize("limit", [0, 1, 5, 16, 17, 100, 1000])
def test_the_largest_that_fits_is_found_to_one_part_in_sixteen(limit: int) -> None:
    asked: list[int] = []

    def fits(number: int) -> bool:
        asked.append(number)
        return number <= limit

    found = largest(fits, 4096)
    assert found <= limit <= found + max(1, found // 16)
    assert len(asked) == len(set(asked)) < 20
    assert largest(lambda _: True, 50) == 50, "there is no more to ask for"


def test_an_update_is_timed_by_the_clock_of_runs() -> None:
    config = compose("train", *TINY, "activations=lossless")
    row = measure_updates(config, CPU, 2)
    assert (row["batch_size"], row["n"], row["peak_bytes"]) == (4, 2, None)
    assert row["images_per_s"] == pytest.approx(4 / row["update_s"])
    assert abs(row["clock_error"]) < 0.2
    assert row["kept_bytes"] > 0 and row["loss"] > 0
    assert settings_of(config) == {
        "model": "shufflenet_v2_x0_5",
        "image_size_px": 64,
        "amp": False,
        "activations": "lossless",
    }


def test_a_batch_is_too_large_where_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def update_twice(_config: object, _device: object, batch_size: int) -> None:
        if batch_size > 37:
            raise torch.OutOfMemoryError

    monkeypatch.setattr(updates, "_update_twice", update_twice)
    assert 34 <= largest_batch(compose("train", *TINY), CPU, 4096) <= 37


def test_as_many_as_are_asked_for_fit_a_cpu() -> None:
    assert largest_batch(compose("train", *TINY), CPU, 2) == 2


def test_a_sum_over_one_process_is_what_it_gave() -> None:
    row = measure_all_reduce(CPU, 4096, 3)
    assert (row["backend"], row["num_bytes"], row["n"]) == ("gloo", 4096, 3)
    assert row["mib_per_s"] == pytest.approx(4096 / 2**20 / row["all_reduce_s"])
    assert not dist.is_initialized()


def test_a_wrong_sum_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "all_reduce", lambda values: values.add_(1))
    with pytest.raises(RunError, match="gloo: the sum over one process is not what it gave"):
        measure_all_reduce(CPU, 64, 1)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    with pytest.raises(RunError, match="there is a process group already"):
        measure_all_reduce(CPU, 64, 1)
