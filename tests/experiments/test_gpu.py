"""The parts of the GPU studies, at smoke size on the CPU."""

from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest

from experiments import gpu

SMALL = [
    *("--device", "cpu", "--image-size", "64", "--batch-size", "4", "--num-updates", "2"),
    *("--max-batch-size", "2", "--reduce-mib", "0.01", "--models", "shufflenet_v2_x0_5"),
]
MEMORY = ["memory", *SMALL, "--activations", "none"]
MODEL = "shufflenet_v2_x0_5, activations none, float32"
CASES = ["all_reduce", f"updates of {MODEL}", f"the largest batch of {MODEL}"]


def test_memory_has_a_row_for_everything_that_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.main([*MEMORY, "--out", str(tmp_path)])
    rows = pd.read_csv(tmp_path / "memory.csv")
    assert rows["case"].tolist() == CASES
    assert rows["n"].tolist() == [2, 2, 1]
    assert {"git_sha", "git_dirty"} < set(rows)
    assert rows[["device", "num_cores", "torch"]].notna().all(axis=None)
    monkeypatch.setattr(gpu, "measure_updates", None)  # cases with rows are not measured again
    gpu.main([*MEMORY, "--out", str(tmp_path)])
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "memory.csv"), rows)


def test_what_no_time_was_left_for_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.main([*MEMORY, "--out", str(tmp_path), "--max-s", "0"])
    said = capsys.readouterr().err.splitlines()
    assert said == [f"no time was left for {case} (--max-s 0)" for case in CASES]


def write_images(root: Path) -> None:
    """Write one class folder of grey images and one of noise."""
    random = np.random.default_rng(0)
    for name, deviation in (("grey", 1), ("noise", 60)):
        (root / name).mkdir(parents=True)
        for i in range(40):
            pixels = random.normal(128, deviation, (64, 64, 3)).clip(0, 255).astype(np.uint8)
            cv2.imwrite(str(root / name / f"{i}.jpg"), pixels)


@pytest.mark.slow
def test_images_are_packed_and_runs_of_seconds_say_how_long_they_waited(tmp_path: Path) -> None:
    write_images(tmp_path / "source" / "folder")
    few = [*SMALL, "--datasets", "folder", "--data-root", f"{tmp_path}/data", "--out", f"{tmp_path}/out"]
    gpu.main(["pack", *few, "--source-root", str(tmp_path / "source"), "--max-images", "50"])
    assert len(list((tmp_path / "data").rglob("*.jpg"))) == 50
    short = ["--run-s", "0.3", "--num-workers", "0", "--overrides", "dataset.images_per_record=8"]
    gpu.main(["training", *few, *short, "--scans", "baseline", "group_1", "--storages", "unlimited"])
    rows = pd.read_csv(tmp_path / "out" / "training.csv")
    assert rows["scan"].tolist() == ["baseline", "group_1"]
    assert (rows["images_per_s"] > 0).all() and rows["wait_share"].between(0, 1).all()


def test_there_is_no_other_part(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main(["speed"])
    assert "invalid choice: 'speed'" in capsys.readouterr().err
