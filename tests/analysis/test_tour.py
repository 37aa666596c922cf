"""Notebooks run from top to bottom and are saved with their output. The tour also runs on a new run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient

from pcr_exp.config.commands import TrackingConfig, TrainConfig
from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.config.training import ModelConfig, TrainingConfig
from pcr_exp.datasets.photos import PhotosConfig
from pcr_exp.runs.train_run import run_training

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "tour.ipynb"
IMAGES_SHOWN = {"tour": 5, "sweep": 4, "planner": 2}
"""Number of figures in each committed notebook."""


def execute(monkeypatch: pytest.MonkeyPatch, runs_root: Path, path: Path = NOTEBOOK) -> str:
    """Execute the notebook; return its printed text and displayed data as text."""
    monkeypatch.setenv("PCR_EXP_TOUR_RUNS", str(runs_root))
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))  # in case the package is not installed
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(str(output.get("text", output.get("data"))) for output in outputs)


def tiny_run(folder: Path) -> TrainConfig:
    return TrainConfig(
        dataset=PhotosConfig(
            name="photos",
            root=str(folder / "photos"),
            label="photo",
            images_per_record=16,
            targets={"top1": 0.05},
            num_train=32,
            num_val=16,
            size_px=64,
        ),
        records=RecordsConfig(root=str(folder / "records"), num_workers=1),
        model=ModelConfig(name="shufflenet_v2_x0_5"),
        scan=ScanConfig(name="group_2", group=2),
        storage=StorageConfig(name="unlimited"),
        loader=LoaderConfig(num_workers=0),
        training=TrainingConfig(
            epochs=2,
            batch_size=16,
            image_size=32,
            eval_image_size=32,
            learning_rate=0.01,
            log_every_steps=1,
            num_threads=1,
        ),
        tracking=TrackingConfig(name="none"),
        runs_root=str(folder / "runs"),
    )


@pytest.mark.program
def test_the_tour_runs_on_a_trained_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_run(tmp_path)
    outcome = run_training(config, progress=False)
    shown = execute(monkeypatch, Path(config.runs_root))
    assert "32 pictures in 2 records of the split val" in shown
    assert re.search(r"photos, \w+ classes, \d+ px, (about )?q\d+ · photo · shufflenet_v2_x0_5", shown)
    assert outcome.run_id not in shown  # a finished run is in the table, not in the list below
    assert shown.count("image/png") == 5


@pytest.mark.slow
def test_the_tour_says_how_to_make_a_run_if_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = execute(monkeypatch, tmp_path / "nothing")
    assert "No finished runs" in shown
    assert shown.count("image/png") == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sweep", "planner"])
def test_other_notebooks_run_as_they_are_committed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in ("PCR_EXP_SWEEP", "PCR_EXP_IMAGES", "PCR_EXP_W", "PCR_EXP_X"):
        monkeypatch.delenv(setting, raising=False)
    shown = execute(monkeypatch, NOTEBOOK.parent / "nothing", NOTEBOOK.with_stem(name))
    assert shown.count("image/png") == IMAGES_SHOWN[name]


@pytest.mark.parametrize("name", sorted(IMAGES_SHOWN))
def test_notebooks_define_nothing_and_are_saved_with_their_output(name: str) -> None:
    notebook = nbformat.read(NOTEBOOK.with_stem(name), as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)], "run from top to bottom"
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == IMAGES_SHOWN[name]
    for cell in code:
        nodes = ast.walk(ast.parse(cell.source.replace("%matplotlib inline", "")))
        assert not any(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda)
            for node in nodes
        )


def test_the_planner_s_answer_says_what_it_knows_of_accuracy() -> None:
    """It considers speed alone, unless it is given the group that `tolerance` found, and then respects it."""
    planner = nbformat.read(NOTEBOOK.with_stem("planner"), as_version=4)
    shown = [
        output["data"].get("text/markdown", "")
        for cell in planner.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    ]
    (said,) = filter(None, shown)
    assert said.startswith("**By speed alone, scan group 5. Nothing is known of accuracy here**")
    source = next(cell.source for cell in planner.cells if "tolerated_group is None" in cell.source)
    levels = [("baseline", 1, 0), ("pcr", 1, 1), ("pcr", 2, 2), ("pcr", 5, 5), ("pcr", 10, 10)]
    predicted = pd.DataFrame(levels, columns=["encoding", "group", "image_bytes"]).assign(
        scan=["baseline", "group_1", "group_2", "group_5", "group_10"],
        images_per_s=2.0,
        hours=1.0,
        dollars=1.0,
        ms_ssim=1.0,
        speedup_over_baseline=1.0,
    )
    predicted.loc[0, "image_bytes"] = 20
    answers = {}
    for tolerated in (None, "5", "1"):
        found: list[str] = []
        fast = pd.DataFrame({"group": [2], "scan": ["group_2"], "waits": [False]})
        names = {
            "predicted": predicted,
            "affordable": lambda _, fast=fast: fast,
            "tolerated_group": tolerated,
        }
        names |= {"epochs": 90, "images_per_epoch": 10, "Markdown": str, "display": found.append}
        exec(source, names)
        answers[tolerated] = found[0]
    assert "scan group 2. Nothing is known" in answers[None]
    assert (
        answers["5"].startswith("**Read scan group 5**") and "(the accelerator still waits)" in answers["5"]
    )
    assert answers["1"].startswith("**Read scan group 2**") and "waits" not in answers["1"]


def test_there_is_no_other_notebook() -> None:
    assert {path.stem for path in NOTEBOOK.parent.glob("*.ipynb")} == set(IMAGES_SHOWN)
