"""Other images or another dataset name make a run of their own."""

from pathlib import Path

import numpy as np
import pytest
from composing import compose
from PIL import Image
from runner_processes import call
from skimage import data as pictures

from pcr_exp.runs.manifest import Manifest, read_manifest
from pcr_exp.runs.rows import Row, read_rows
from pcr_exp.runs.train_run import run_training


def class_folders(root: Path, first_px: int) -> Path:
    """Create two classes of twelve small photographs; `first_px` determines where they are cut."""
    for name in ("coffee", "rocket"):
        picture = getattr(pictures, name)()
        (root / name).mkdir(parents=True)
        for i in range(12):
            crop = np.ascontiguousarray(picture[first_px + i * 8 :, 40 + i * 8 :][:80, :96])
            Image.fromarray(crop).save(root / name / f"{i}.jpg", quality=90)
    return root


def settings(root: Path, records: Path, runs: Path, *overrides: str) -> list[str]:
    places = [f"dataset.root={root}", f"records.root={records}", f"runs_root={runs}"]
    sizes = ["dataset.images_per_record=4", "training=debug", "training.image_size=64", "loader=debug"]
    few = ["training.device=cpu", "training.num_threads=1", "records.num_workers=1"]
    return ["dataset=folder", *places, *sizes, *few, *overrides]


def trained(root: Path, records: Path, runs: Path, *overrides: str) -> str:
    return run_training(compose("train", *settings(root, records, runs, *overrides)), progress=False).status


def runs_in(root: Path) -> dict[str, tuple[Manifest, Row]]:
    folders = [path for path in root.iterdir() if (path / "manifest.json").exists()]
    return {
        path.name: (read_manifest(path / "manifest.json"), read_rows(path / "rows.jsonl")[-1])
        for path in folders
    }


def test_the_same_command_on_another_folder_is_another_run(tmp_path: Path) -> None:
    """The second run is not skipped as finished, and has results of its own."""
    one, other = class_folders(tmp_path / "A" / "mine", 0), class_folders(tmp_path / "B" / "mine", 100)
    runs = tmp_path / "runs"
    assert trained(one, tmp_path / "rA", runs) == "finished"
    assert trained(other, tmp_path / "rB", runs) == "finished"
    assert len(runs_in(runs)) == 2
    (first, first_row), (second, second_row) = runs_in(runs).values()
    assert first.images_key != second.images_key
    assert first_row["train_loss"] != second_row["train_loss"]
    assert trained(other, tmp_path / "rB", runs) == "skipped"
    # The same images in another folder are the same run.
    moved = (tmp_path / "A").rename(tmp_path / "C") / "mine"
    assert trained(moved, tmp_path / "rC", runs) == "skipped"
    # Another number of workers is timed in a folder of its own, and gives the same training loss.
    assert trained(other, tmp_path / "rB", runs, "loader.num_workers=1") == "finished"
    assert trained(other, tmp_path / "rB", runs, "loader.num_workers=1") == "skipped"
    (timed,) = (name for name in runs_in(runs) if name.rpartition("-")[2].startswith("t"))
    base, base_row = runs_in(runs)[timed.rpartition("-")[0]]
    again, again_row = runs_in(runs)[timed]
    assert again.images_key == base.images_key
    assert again_row["train_loss"] == base_row["train_loss"]
    assert again.timing_key != base.timing_key
    assert again.quality == base.quality != []


@pytest.mark.program
def test_a_folder_is_called_what_its_user_calls_it(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "pictures", 0)
    places = (tmp_path / "records", tmp_path / "runs")
    done = call("train", *settings(root, *places, "dataset.name=pets"))
    assert done.returncode == 0, done.stderr
    assert trained(root, *places, "dataset.name=pets") == "skipped", "typed or not, it is one run"
    ((name, (manifest, _)),) = runs_in(tmp_path / "runs").items()
    assert name.startswith("pets-") and manifest.dataset == "pets"
