"""Paths of a setting and of a result through the package: the files that handle them, by traced calls."""

import dataclasses
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
import pytest
from omegaconf import DictConfig

import pcr_exp
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.primary_metric import as_written
from pcr_exp.analysis.runs import read_runs
from pcr_exp.analysis.summary import summary_table
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.compose import compose
from pcr_exp.runs.train_run import run_training
from pcr_exp.storage.open import open_storage
from pcr_exp.training.task import Classification

PACKAGE = f"{Path(pcr_exp.__file__).parent}/"
_DEPTH = 5


class Walk:
    """Records each function of the package that receives, holds or returns a number, while it is active.

    The number is recognised by its unique digits: as a float, in text, or in a table.
    """

    def __init__(self, mark: float) -> None:
        self.functions: dict[str, list[str]] = {}
        self._mark = mark

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        path = frame.f_code.co_filename
        if event not in ("call", "return") or not path.startswith(PACKAGE):
            return
        file, function = path.removeprefix(PACKAGE), frame.f_code.co_name
        if function in self.functions.get(file, ()):
            return
        held = [value] if event == "return" else []
        if self._carries([*held, *frame.f_locals.values()], 0):
            self.functions.setdefault(file, []).append(function)

    def begin(self) -> None:
        self._before = sys.getprofile()
        threading.setprofile(self)
        sys.setprofile(self)

    def end(self) -> None:
        sys.setprofile(self._before)
        threading.setprofile(None)

    def _carries(self, value: Any, depth: int) -> bool:
        if isinstance(value, float):
            return value == self._mark
        if isinstance(value, str | bytes):
            return repr(self._mark) in (value if isinstance(value, str) else value.decode(errors="ignore"))
        if isinstance(value, pd.DataFrame | pd.Series):
            return bool((value == self._mark).to_numpy().any())
        return depth < _DEPTH and any(self._carries(part, depth + 1) for part in _parts(value))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, DictConfig):
        return value._content.values() if isinstance(value._content, dict) else []
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return value[:64]
    if dataclasses.is_dataclass(value):
        return [getattr(value, each.name, None) for each in dataclasses.fields(value)]
    return []


def show(walk: Walk) -> None:
    for file, functions in walk.functions.items():
        print(f"{file}: {', '.join(functions)}")
    print(len(walk.functions), "files")


def test_a_bandwidth_passes_few_files_from_the_command_line_to_the_throttle(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    walk = Walk(123.4375)
    walk.begin()
    try:
        config = compose("train", TrainConfig, "dataset=photos", "storage.bandwidth_mib_per_s=123.4375")
        open_storage(str(tmp_path), config.storage).read("file", 0, 100)
    finally:
        walk.end()
    show(walk)
    files = list(walk.functions)
    assert (files[0], files[-1]) == ("config/compose.py", "storage/throttle.py")
    assert len(files) <= 6


def test_a_metric_passes_few_files_from_the_loop_to_the_table(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = 0.6180339887
    walk, metrics = Walk(mark), Classification.metrics

    def marked(*arguments: Any) -> dict[str, Any]:
        walk.begin()
        return {**metrics(*arguments), "val_top1": mark}

    monkeypatch.setattr(Classification, "metrics", marked)
    config = configure(training__epochs=1)
    try:
        run_training(config, progress=False)
        num_written = len(walk.functions)
        table = as_written(summary_table(run_frame(read_runs(config.runs_root))))
    finally:
        walk.end()
    show(walk)
    print(num_written, "of them up to the file of rows")
    assert table["final_top1_mean"].tolist() == [mark]
    assert next(iter(walk.functions)) == "training/evaluate.py"
    assert len(walk.functions) <= 19
