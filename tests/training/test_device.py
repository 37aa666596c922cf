import pytest
import torch

from pcr_exp.errors import ConfigError
from pcr_exp.training.clocks import amp_dtype, cpu_threads, open_device, synchronizer


def test_auto_takes_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, wanted in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        assert open_device("auto").type == wanted


@pytest.mark.parametrize("name", ["gpu", "meta", "cuda:x"])
def test_a_device_that_there_is_not(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"training.device='{name}': wanted auto, cpu, cuda"):
        open_device(name)


def test_a_gpu_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert open_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(ConfigError, match="torch sees 1 CUDA devices"):
        open_device("cuda:1")


def test_computing_leaves_the_workers_their_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert [cpu_threads(torch.device("cpu"), num_workers) for num_workers in (0, 1, 3, 9)] == [4, 3, 1, 1]
    assert cpu_threads(torch.device("cuda"), 1) is None


def test_mixed_precision_is_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert amp_dtype(torch.device("cpu")) is None
    for native, wanted in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda native=native, **_: native)
        assert amp_dtype(torch.device("cuda")) == wanted


def test_a_gpu_is_waited_for_and_a_cpu_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    synchronizer(torch.device("cpu"))()
    assert waited == []
    synchronizer(torch.device("cuda"))()
    assert waited == [torch.device("cuda")]
