"""`pcr-exp throughput` measures our own scan levels in-process; other measurements need a checkout."""

from pathlib import Path

import pandas as pd
import pytest
from composing import compose

from pcr_exp.cli.throughput import throughput
from pcr_exp.errors import ConfigError

SMALL = [
    *("dataset.num_train=24", "dataset.tune_fraction=0", "dataset.num_val=8"),
    *("dataset.size_px=64", "dataset.images_per_record=8", "image_size=32", "batch_size=8"),
    *("loader.num_workers=0", "repeats=2", "measure_s=0.01", "scans=[baseline,group_1]"),
    *("bandwidths_mib_per_s=[5]", "latencies_ms=[]", "requests_per_s=[200]", "peers=[dali]"),
]


@pytest.mark.usefixtures("light_figures")
def test_levels_are_measured_in_turns_under_every_storage(tmp_path: Path) -> None:
    paths = [f"dataset.root={tmp_path}/photos", f"work={tmp_path}/work", f"out={tmp_path}/out"]
    assert throughput(compose("throughput", *SMALL, *paths)) == "finished"
    rows = pd.read_csv(tmp_path / "out" / "throughput.csv")
    turn = [("baseline", "unlimited"), ("group_1", "unlimited"), ("baseline", "5 MiB/s")]
    turn += [("group_1", "5 MiB/s"), ("baseline", "200 requests/s"), ("group_1", "200 requests/s")]
    assert list(zip(rows["loader"], rows["storage"], strict=True)) == turn * 2
    assert rows["repeat"].tolist() == [0] * 6 + [1] * 6
    assert (rows["images_per_s"] > 0).all() and (rows["num_images"] == 24 * rows["num_epochs"]).all()
    assert rows["model_images_per_s"].isna().all()
    text = (tmp_path / "out" / "throughput.md").read_text()
    assert "| 5 MiB/s | group 1 | scaled, filtered |" in text
    assert "* dali: absent, loaders of other projects are measured in a checkout" in text
    names = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert names == {"throughput_vs_scan.png"}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("validate=true", "validate=true: wanted false. The model of throughput is measured in a checkout"),
        ("one_core=true", "one_core=true: wanted false. One core alone is measured in a checkout"),
        (
            "scans=[]",
            r"scans=\[\]: wanted at least one scan level. "
            "Loaders of other projects are measured in a checkout",
        ),
    ],
)
def test_the_rest_is_for_a_checkout(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        throughput(compose("throughput", override))


def test_a_cluster_is_predicted_without_measuring(tmp_path: Path) -> None:
    config = compose("throughput", "plan=laptop", f"plan.out={tmp_path}/out", f"work={tmp_path}/work")
    assert throughput(config) == "finished"
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
