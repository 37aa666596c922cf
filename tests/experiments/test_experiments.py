"""Every experiment file: its note, its place in the catalogue, and its smoke size, composed and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from composing import compose
from omegaconf import OmegaConf
from runner_processes import REPO, call

from experiments.catalogue import FOLDER, PAGE, WITHOUT_AN_EXPERIMENT, LabNote, page, read_note, read_notes
from pcr_exp.cli.answers import answer_of, describe_answer
from pcr_exp.cli.typed import SMOKE, acting, beside, smoke_overrides
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.compose import load
from pcr_exp.datasets.photos import PhotosConfig
from pcr_exp.errors import RunError
from pcr_exp.places import CONFIGS
from pcr_exp.runs.train_run import run_training

NOTES = {note.name: note for note in read_notes()}
PAPERS = {
    "PCR": 16,
    "Echoing": 7,
    "3LC": 7,
    "COMET": 7,
}
"""Number of figures and tables of each paper that the reproduction has to cover."""
RUN_FIRST = ("demo", "sample_image")
"""A training and a measurement that `-m program` runs; `-m slow` runs the others."""


def runner_of(note: LabNote) -> str:
    return "train" if note.runner == "demo" else note.runner


def first_values(overrides: list[str]) -> list[str]:
    """Keep only the first value of each sweep: `scan=baseline,group_1` -> `scan=baseline`."""
    split = (override.partition("=") for override in overrides)
    return [f"{key}={value if value.startswith('[') else value.split(',')[0]}" for key, _, value in split]


def smoke_of(path: Path) -> dict[str, Any]:
    """Return `smoke` of a file and its parent experiments, without composing, which takes half a second."""
    content: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    parents = [entry for entry in content.get("defaults", []) if isinstance(entry, str) and entry in NOTES]
    found = {key: value for name in parents for key, value in smoke_of(FOLDER / f"{name}.yaml").items()}
    return found | content.get("smoke", {})


@pytest.mark.parametrize("name", NOTES)
def test_every_experiment_says_what_it_is_and_composes_at_its_smoke_size(name: str) -> None:
    note = NOTES[name]
    assert note.says and note.command and note.expect and note.cost
    runner, experiment = runner_of(note), f"experiment={name}"
    smoke = smoke_of(CONFIGS / f"{runner}.yaml") | smoke_of(FOLDER / f"{name}.yaml")
    config = compose(runner, experiment, *first_values(beside(smoke, [experiment, SMOKE])))
    assert config.smoke == smoke, "it is what is composed"
    dataset = config.dataset
    assert isinstance(dataset, PhotosConfig) and dataset.num_train == 48
    folder = config.runs_root if runner == "train" else getattr(config, "out_root", None) or config.out
    assert folder.startswith("outputs/smoke/"), "a trial run does not lie among results"


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTES)
def test_every_experiment_composes_at_its_full_size(name: str) -> None:
    assert compose(runner_of(NOTES[name]), f"experiment={name}") is not None


def test_every_figure_of_the_papers_has_one_experiment() -> None:
    figures = [figure for note in NOTES.values() for figure in note.papers] + [*WITHOUT_AN_EXPERIMENT]
    assert len(set(figures)) == len(figures), "a figure belongs to one experiment"
    counted = {paper: sum(figure.startswith(f"{paper}: ") for figure in figures) for paper in PAPERS}
    assert counted == PAPERS and sum(PAPERS.values()) == len(figures)


def test_a_file_without_a_note_says_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("note: {says: it, papers: [], command: none}\nseed: 1\n")
    with pytest.raises(
        RunError, match=r"mine\.yaml: wanted a lab note with says, .* lacks \['expect', 'cost'\]"
    ):
        read_note(path)


def test_the_catalogue_is_made_of_the_notes() -> None:
    assert PAGE.read_text() == page(list(NOTES.values())), "run python -m experiments.catalogue"


def test_what_was_typed_goes_before_the_smoke_size() -> None:
    assert smoke_overrides("train", ["experiment=finetuning"]) == []
    typed = ["experiment=finetuning", "dataset=cars", "seed=3", "~training.nesterov", SMOKE]
    small = dict(override.split("=", 1) for override in smoke_overrides("train", typed))
    assert "dataset" not in small and "seed" not in small and "model" not in small
    assert "dataset.num_train" not in small, "of the embedded dataset alone"
    assert small["dataset.images_per_record"] == "16" and small["scan"] == "baseline,group_1"


SMALL = [f"{key}={value}" for key, value in smoke_of(CONFIGS / "train.yaml").items()]
"""The overrides that `runner=smoke` adds to `train`."""


@pytest.mark.parametrize(
    ("scan", "first"),
    [
        ("schedule", [(0, "given"), (1, "given"), (2, "given"), (3, "given")]),
        ("cosine", [(0, "given"), (1, "cosine")]),
        ("plateau", [(0, "given"), (3, "train_loss")]),
    ],
)
def test_a_policy_decides_in_a_trial_run(scan: str, first: list[tuple[int, str]], tmp_path: Path) -> None:
    """Its first decisions come after these epochs, and are based on these measures."""
    places = {"dataset.root": "photos", "records.root": "records", "runs_root": "runs"}
    roots = [f"{key}={tmp_path}/{name}" for key, name in places.items()]
    typed = [*SMALL, f"scan={scan}", "training.num_threads=1", *roots]
    composed = OmegaConf.structured(compose("train", *typed))
    composed.smoke = smoke_of(CONFIGS / "train.yaml")
    small = acting(composed, OmegaConf.to_object(composed), typed)
    done = run_training(load(small, TrainConfig), progress=False)
    rows = [json.loads(line) for line in (done.folder / "rows.jsonl").read_text().splitlines()]
    decided = [(row["epoch"], row["measure"]) for row in rows if row["kind"] == "policy"]
    assert decided[: len(first)] == first
    answer = answer_of(done.folder)
    score = next(row["val_top1"] for row in reversed(rows) if row["kind"] == "eval")
    assert answer is not None and (answer.headline, answer.score) == ("top-1", f"{100 * score:.1f}%")
    assert (
        describe_answer(answer) == f"top-1 {answer.score} of 16 images, after {small.training.epochs} epochs"
    )


def test_what_was_typed_of_a_policy_is_left_in_a_trial_run() -> None:
    typed = [*SMALL, "scan=cosine", "scan.first_epoch=4", "training.epochs=5"]
    composed = OmegaConf.structured(compose("train", *typed))
    small = acting(composed, OmegaConf.to_object(composed), typed)
    assert (small.scan.first_epoch, small.scan.every_epochs, small.training.epochs) == (4, 1, 5)
    quality = OmegaConf.structured(compose("quality"))
    assert acting(quality, OmegaConf.to_object(quality), []) is quality


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder that all trial runs and their data share."""
    return tmp_path_factory.mktemp("smoke")


def roots(runner: str, place: Path) -> list[str]:
    data = [f"dataset.root={place}/photos"]
    records = [f"records.root={place}/records"]
    of_runner = {
        "train": [*records, f"runs_root={place}/runs"],
        "quality": [*records, f"out={place}/out"],
        "evaluate": [*records, f"runs=[{place}/trained]", f"out={place}/out"],
        "activation_study": [*records, f"out={place}/out"],
        "throughput": [f"work={place}/work", f"out={place}/out", "loader.num_workers=1"],
    }
    return [*data, *of_runner[runner], f"hydra.sweep.dir={place}/sweep"]


def run_small(name: str, place: Path) -> None:
    runner = runner_of(NOTES[name])
    if runner == "evaluate":  # needs a trained run
        trained = call("train", SMOKE, *roots("train", place), f"runs_root={place}/trained")
        assert trained.returncode == 0, trained.stderr
    plan = [f"plan.out={place}/plan"] if name == "roofline" else []
    arguments = [f"experiment={name}", SMOKE, *roots(runner, place), *plan]
    several = NOTES[name].num_processes
    done = call(runner, *arguments) if several == 1 else torchrun(several, *arguments)
    assert done.returncode == 0, done.stderr


def torchrun(processes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `torchrun -m experiments.train`, for experiments that compress traffic between processes."""
    start = ["--nproc-per-node", str(processes), "--master-port", str(29500 + os.getpid() % 1000)]
    command = [sys.executable, "-m", "torch.distributed.run", *start, "-m", "experiments.train", *arguments]
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.program
@pytest.mark.parametrize("name", RUN_FIRST)
def test_experiments_run_at_their_smoke_size(name: str, place: Path) -> None:
    run_small(name, place)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NOTES.keys() - set(RUN_FIRST)))
def test_all_other_experiments_run_at_their_smoke_size(name: str, place: Path) -> None:
    run_small(name, place)
