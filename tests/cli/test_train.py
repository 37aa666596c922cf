"""A training run writes its figure to its directory and sends it to the tracker."""

from pathlib import Path

import pytest
from composing import compose

from pcr_exp.cli.train import train

TINY = [
    "training=debug",
    "training.num_threads=1",
    "loader=debug",
    # The last batch has three images: at 0.01, their batch statistics can ruin a model (torch 2.11).
    "training.learning_rate=0.001",
    "dataset.num_train=32",
    "dataset.num_val=16",
    "dataset.size_px=64",
    "dataset.images_per_record=16",
]


@pytest.mark.usefixtures("light_figures")
@pytest.mark.parametrize("tracking", ["none", pytest.param("wandb", marks=pytest.mark.program)])
def test_a_run_s_curve_is_drawn_and_shown(
    tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    config = compose(
        "train",
        *TINY,
        "records.num_workers=1",
        f"tracking={tracking}",
        f"dataset.root={tmp_path / 'photos'}",
        f"records.root={tmp_path / 'records'}",
        f"runs_root={tmp_path / 'runs'}",
    )
    assert train(config) == "finished"
    (run,) = (tmp_path / "runs").iterdir()
    for ending in ("png", "pdf", "csv"):
        assert (run / f"training_curve.{ending}").stat().st_size > 0
    images = list(run.glob("wandb/offline-run-*/files/media/images/figures/training_curve*.png"))
    assert len(images) == (tracking == "wandb")
    for image in images:
        assert image.read_bytes() == (run / "training_curve.png").read_bytes()
