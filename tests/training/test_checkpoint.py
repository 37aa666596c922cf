import os
from pathlib import Path

import pytest
import torch
from torch import nn

from pcr_exp.errors import RunError, StorageError
from pcr_exp.training.weights import load_checkpoint, save_checkpoint, weights_of


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    state = {"model": {"w": torch.arange(3.0)}, "progress": {"step": 7, "interval_start": {}}, "name": "x"}
    save_checkpoint(tmp_path / "checkpoint.pt", state)
    loaded = load_checkpoint(tmp_path / "checkpoint.pt")
    assert torch.equal(loaded["model"]["w"], torch.arange(3.0))
    assert loaded["progress"] == state["progress"]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_crash_while_saving_leaves_the_checkpoint_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"step": 1})

    def crash(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(StorageError, match="Input/output error"):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path)["step"] == 1


def test_a_damaged_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"w": torch.zeros(1000)})
    for content in (path.read_bytes()[:500], b"hello", b""):
        path.write_bytes(content)
        with pytest.raises(RunError, match=r"checkpoint.pt cannot be read.*Delete its run directory"):
            load_checkpoint(path)


@pytest.mark.parametrize("content", [{"format": 0}, {}, [1, 2]])
def test_a_checkpoint_of_another_format(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "checkpoint.pt")
    with pytest.raises(RunError, match="reads format 1"):
        load_checkpoint(tmp_path / "checkpoint.pt")


def test_code_in_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    torch.save({"format": 1, "model": torch.nn.Linear(1, 1)}, tmp_path / "checkpoint.pt")
    with pytest.raises(RunError, match="cannot be read"):
        load_checkpoint(tmp_path / "checkpoint.pt")


def test_weights_are_those_of_the_parameter_server() -> None:
    """Workers lag behind the server; it has no running statistics."""
    worker, server = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    nn.init.constant_(server.weight, 5)
    exchange = {"server": {"weights": dict(server.named_parameters())}}
    found = weights_of({"model": worker.state_dict(), "exchange": exchange})
    assert found.keys() == worker.state_dict().keys()
    assert torch.equal(found["weight"], server.weight)
    assert torch.equal(weights_of({"model": worker.state_dict()})["weight"], worker.weight)
