"""`python -m experiments.throughput`, from its configuration to its figures."""

from pathlib import Path

import pandas as pd
import pytest
from composing import compose

from experiments.loaders.peers.catalogue import PEERS
from experiments.throughput import throughput
from pcr_exp.errors import ConfigError, RunError

pytestmark = pytest.mark.usefixtures("light_figures")

SMALL = [
    *(
        "dataset.num_train=24",
        "dataset.tune_fraction=0",
        "dataset.num_val=8",
        "dataset.size_px=64",
        "dataset.images_per_record=8",
    ),
    *("image_size=32", "batch_size=8", "loader.num_workers=1", "repeats=2", "measure_s=0.01"),
    *("scans=[baseline,group_1]", "peers=[image_folder_pil,ffcv]", "model_images_per_s=1000"),
    *("bandwidths_mib_per_s=[5]", "latencies_ms=[]", "requests_per_s=[200]"),
]


@pytest.mark.program
def test_a_whole_run_on_a_few_photographs(tmp_path: Path) -> None:
    paths = [f"dataset.root={tmp_path}/photos", f"work={tmp_path}/work", f"out={tmp_path}/out"]
    config = compose("throughput", *SMALL, *paths)
    assert throughput(config) == "finished"
    rows = pd.read_csv(tmp_path / "out" / "throughput.csv")
    assert len(rows) == 2 * 3 * 4
    assert (rows["images_per_s"] > 0).all() and (rows["cpu_s_per_image"] > 0).all()
    assert (rows["num_images"] == 24 * rows["num_epochs"]).all()
    assert rows["cached_share"].between(0, 1).all()
    slow = rows[(rows["storage"] == "200 requests/s") & (rows["loader"] == "image_folder_pil")]
    # One request per image at 200 a second, except for a batch that was ready when the clock started.
    assert ((slow["num_images"] - 8) / slow["total_s"] < 210).all() and len(slow) == 2
    text = (tmp_path / "out" / "throughput.md").read_text()
    assert "* FFCV, original bytes: absent" in text and "| files_and_copies |" in text
    names = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert names == {"loaders.png", "throughput_vs_scan.png", "file_per_image.png"}
    (tmp_path / "out" / "loaders.png").unlink()
    assert throughput(compose("throughput", *SMALL, *paths, "measure=false")) == "finished"
    assert (tmp_path / "out" / "loaders.png").exists()
    assert pd.read_csv(tmp_path / "out" / "throughput.csv").equals(rows)


def test_drawing_needs_a_measurement(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no complete measurement"):
        throughput(compose("throughput", "measure=false", f"out={tmp_path}"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("repeats=0", "repeats=0: wanted at least 1"),
        ("batch_size=0", "batch_size=0: wanted at least 1"),
        ("image_size=0", "image_size=0: wanted at least 1"),
        ("measure_s=0", r"measure_s=0.0: wanted seconds above 0"),
        ("model_images_per_s=-1", r"model_images_per_s=-1.0: wanted null or a rate above 0"),
        ("bandwidths_mib_per_s=[5,0]", r"bandwidths_mib_per_s=\[5.0, 0.0\]: wanted limits above 0"),
        ("latencies_ms=[-1]", r"latencies_ms=\[-1.0\]: wanted limits above 0"),
        ("requests_per_s=[0]", r"requests_per_s=\[0.0\]: wanted limits above 0"),
        ("on_error=ignore", "on_error='ignore': wanted fail or skip"),
        ("settle_s=0", r"settle_s=0.0: wanted seconds above 0"),
        ("processes=[]", r"processes=\[\]: wanted numbers of reading processes, at least 1"),
        ("processes=[1,0]", r"processes=\[1, 0\]: wanted numbers of reading processes, at least 1"),
    ],
)
def test_values_that_cannot_work(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose("throughput", override)


def test_a_loader_is_needed() -> None:
    with pytest.raises(ConfigError, match="at least one loader"):
        compose("throughput", "scans=[]", "peers=[]")


def test_a_cluster_is_predicted_without_measuring(tmp_path: Path) -> None:
    config = compose("throughput", "plan=laptop", f"plan.out={tmp_path}/out", f"work={tmp_path}/work")
    assert throughput(config) == "finished"
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    assert len(pd.read_csv(tmp_path / "out" / "predictions.csv")) == 2 * 5


def test_a_plan_can_be_changed_like_any_setting() -> None:
    config = compose("throughput", "plan=paper_cluster", "plan.workers=3", "storage@plan.storage=hdd")
    assert config.plan is not None
    assert (config.plan.workers, config.plan.storage.name) == (3, "hdd")


def test_a_plan_is_not_validated() -> None:
    with pytest.raises(ConfigError, match="validate=True: wanted false where a plan is given"):
        compose("throughput", "plan=laptop", "validate=true")


@pytest.mark.slow
def test_the_model_is_held_against_measurements(tmp_path: Path) -> None:
    paths = [f"dataset.root={tmp_path}/photos", f"work={tmp_path}/work", f"out={tmp_path}/out"]
    config = compose(
        "throughput",
        *("experiment=throughput_model", "dataset.num_train=64", "dataset.num_val=8", "dataset.size_px=64"),
        *("scans=[baseline]", "processes=[1]", "bandwidths_mib_per_s=[]", "measure_s=3", *paths),
    )
    assert throughput(config) == "finished"
    assert throughput(config) == "finished"
    rows = pd.read_csv(tmp_path / "out" / "validation_rows.csv")
    assert rows["repeat"].tolist() == [0] * 3 + [1] * 3
    far = rows[rows["storage"] == "200 ms"]["images_per_s"]
    assert (far < 1.02 * 160).all(), "4 reads of 8 images in 0.2 s"
    assert (tmp_path / "out" / "predicted_vs_measured_rates.png").exists()


def test_defaults_ask_for_every_scan_level_and_peer() -> None:
    config = compose(
        "throughput",
    )
    assert config.scans == ["baseline", "group_1", "group_2", "group_5", "group_10"]
    assert config.peers == list(PEERS)
    assert config.out == "outputs/throughput/photos"
