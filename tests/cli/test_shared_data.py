"""Training and quality on a few real photographs of each dataset, through the runners' own functions."""

from pathlib import Path

import pandas as pd
import pytest
from composing import compose

from pcr_exp.cli.quality import quality
from pcr_exp.cli.train import train
from pcr_exp.runs.rows import read_rows

pytestmark = [pytest.mark.program, pytest.mark.usefixtures("light_figures")]
SHARED = Path(__file__).parents[2].parent / "shared" / "data"
DATASETS = {
    "imagenet": [],
    "ham10000": [],
    "cars": ["dataset.label=make"],
    "celebahq": [],
}
FEW = [
    "dataset.max_train_images=24",
    "dataset.max_val_images=12",
    "dataset.images_per_record=8",
]


@pytest.fixture(params=DATASETS)
def dataset(request: pytest.FixtureRequest) -> list[str]:
    root = SHARED / request.param
    if not root.is_dir():
        pytest.skip(f"../shared/data is not here: wanted {root}")
    return [f"dataset={request.param}", f"dataset.root={root}", *DATASETS[request.param], *FEW]


def test_a_real_dataset_trains_and_is_measured(dataset: list[str], tmp_path: Path) -> None:
    records = f"records.root={tmp_path / 'records'}"
    config = compose(
        "train",
        *dataset,
        records,
        "scan=group_2",
        *("training=debug", "training.image_size=64", "training.num_threads=1", "loader=debug"),
        f"runs_root={tmp_path / 'runs'}",
    )
    assert train(config) == "finished"
    assert train(config) == "skipped"
    (run,) = (tmp_path / "runs").iterdir()
    evaluated = [row for row in read_rows(run / "rows.jsonl") if row["kind"] == "eval"]
    assert evaluated[-1]["num_val"] == 12 and evaluated[-1]["samples_seen"] == 24

    out = tmp_path / "quality"
    few = ["max_images=4", "groups=[1,2,5,10]", f"out={out}"]
    assert quality(compose("quality", *dataset, records, *few)) == "finished"
    summary = pd.read_csv(out / "quality_summary.csv").set_index("group")
    assert (summary["n"] == 4).all()
    assert summary["ms_ssim_mean"].is_monotonic_increasing and summary["bytes_mean"].is_monotonic_increasing
    assert (out / "mssim_vs_scan.png").stat().st_size > 0


@pytest.mark.parametrize("dataset", ["ham10000"], indirect=True)
def test_crops_of_a_real_dataset_are_measured_in_every_decode_mode(
    dataset: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "quality"
    few = ["max_images=4", "groups=[1,10]", f"out={out}", f"records.root={tmp_path / 'records'}"]
    crops = ["decodes=[libjpeg,unsmoothed,scaled]", "crop_size_px=176"]
    assert quality(compose("quality", *dataset, *few, *crops)) == "finished"
    modes = pd.read_csv(out / "decode_modes_summary.csv").set_index("group")
    assert (modes["n"] == 4).all() and modes.loc[10, "scaled_mean"] == 1.0
    assert (out / "decode_modes.png").stat().st_size > 0
