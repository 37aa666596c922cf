"""The check that trainings were long enough to compare accuracies, on synthetic and committed rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.claims.verdict import too_short
from experiments.pcr.learning import metric_of_file
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.runs import Run, read_runs

MakeRun = Callable[..., Path]
RESULTS = Path(__file__).parents[2] / "results"


def trained(root: Path, make_run: MakeRun, loss: float, *scores: float, scan: str = "baseline") -> list[Run]:
    """Write and read runs of eight classes with target 0.6; the loss at chance level is 2.08."""
    for seed, score in enumerate(scores):
        make_run(root, scan, seed=seed, top1=(0.2, score), columns={"train_loss": loss})
    return read_runs(root)


def test_a_training_that_learned_is_long_enough(tmp_path: Path, make_run: MakeRun) -> None:
    assert too_short(run_frame(trained(tmp_path, make_run, 1.0, 0.59, 0.6))) == ""
    assert too_short(run_frame([])) == "", "a measurement without trainings"


def test_the_training_loss_says_that_little_was_learned(tmp_path: Path, make_run: MakeRun) -> None:
    why = too_short(run_frame(trained(tmp_path, make_run, 1.05, 0.9)))
    assert "too short" in why and "training loss of 1.05, where guessing has 2.08" in why


def test_so_does_the_distance_to_the_target(tmp_path: Path, make_run: MakeRun) -> None:
    why = too_short(run_frame(trained(tmp_path, make_run, 0.5, 0.57, 0.57)))
    assert "too short" in why and "57.0% top-1, where the target is 60.0%" in why


def test_the_best_setting_decides(tmp_path: Path, make_run: MakeRun) -> None:
    """A scan level that loses accuracy does not make the trainings too short."""
    trained(tmp_path, make_run, 1.9, 0.3, scan="group_1")
    assert too_short(run_frame(trained(tmp_path, make_run, 0.4, 0.7, 0.7))) == ""


def test_another_metric_has_its_own_target() -> None:
    """The folds of skin lesions come close enough to their top-1 target, not to that of balanced accuracy."""
    runs = run_frame(read_runs(RESULTS / "finetuning" / "ham10000_folds" / "runs"))
    assert too_short(runs, "top1") == ""
    assert "balanced accuracy, where the target is 60.0%" in too_short(runs)
    assert metric_of_file("deployment_top1") == "top1"
    assert metric_of_file("deployment") is None is metric_of_file("summary")


def test_pages_say_where_trainings_were_too_short() -> None:
    """Pages state it exactly when their rows show it; verdicts need no list that is maintained by hand."""
    found = {
        path.relative_to(RESULTS).parts[0]
        for path in RESULTS.glob("**/runs/runs.json.gz")
        if too_short(run_frame(read_runs(path.parent)))
    }
    pages = RESULTS.glob("*/README.md")
    said = {page.parent.name for page in pages if "too short to compare accuracies" in page.read_text()}
    assert said == found != set()


@pytest.mark.parametrize("name", ["finetuning/cars", "finetuning/celebahq", "from_scratch/imagenet_13394"])
def test_trainings_until_something_was_learned_are_not(name: str) -> None:
    runs = read_runs(RESULTS / name / "runs")
    assert runs and too_short(run_frame(runs)) == ""
