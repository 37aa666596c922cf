"""Speed ratios within one interleaved run, which must hold on any machine, however busy.

Thresholds against ImageFolder are about three quarters of the ratios in `results/throughput/loaders`. Any of
these regressions would miss them: a decoder that smooths or decodes more than a crop needs, workers that do
not run in parallel, reading that waits for decoding, or a record that is read whole for its first scan.
"""

from pathlib import Path

import pandas as pd
import pytest

from experiments.loaders.contest import measure
from pcr_exp.analysis.throughput import bounds, summarise_throughput
from pcr_exp.config.compose import compose
from pcr_exp.config.throughput import ThroughputConfig

pytestmark = pytest.mark.slow

NATIVE = Path(__file__).parents[2].parent / "shared" / "data" / "imagenet_native_sample"
MORE_THAN_DECODING = 1 / 0.85
"""Maximum CPU time of the loader over that of decoding and cropping alone; the goal is 1 / 0.95."""


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Return a summary of 3 repeats on native ImageNet images, each used once; epochs run without a pause."""
    if not NATIVE.is_dir():
        pytest.skip("../shared/data is not here: imagenet_native_sample is wanted")
    tmp_path = tmp_path_factory.mktemp("throughput")
    for split in ("train", "val"):
        for folder in NATIVE.iterdir():
            (tmp_path / "images" / split / folder.name).mkdir(parents=True)
            for image in folder.iterdir():
                (tmp_path / "images" / split / folder.name / image.name).symlink_to(image)
    overrides = [
        *("dataset=folder", f"dataset.root={tmp_path}/images", "dataset.images_per_record=64"),
        "dataset.tune_fraction=0",
        *(f"work={tmp_path}/work", f"out={tmp_path}/out", "repeats=3", "measure_s=1", "static_copies=false"),
        *(
            "scans=[baseline,group_1,group_2,group_5,group_10]",
            "decodes=[scaled]",
            "peers=[image_folder_pil]",
        ),
        "model_images_per_s=null",
        *("bandwidths_mib_per_s=[10]", "latencies_ms=[]", "requests_per_s=[100]"),
    ]
    measure(compose("throughput", ThroughputConfig, *overrides))
    return summarise_throughput(pd.read_csv(tmp_path / "out" / "throughput.csv"))


def rate(
    summary: pd.DataFrame, loader: str, storage: str = "unlimited", column: str = "images_per_s"
) -> float:
    chosen = summary[(summary["loader"] == loader) & (summary["storage"] == storage)]
    return float(chosen[f"{column}_median"].iloc[0])


@pytest.mark.parametrize(
    ("scan", "at_least"),
    [("baseline", 1.6), ("group_1", 6.5), ("group_2", 4.0), ("group_5", 1.45), ("group_10", 0.48)],
)
def test_ours_beside_image_folder(scan: str, at_least: float, summary: pd.DataFrame) -> None:
    assert rate(summary, scan, column="ratio") >= at_least


@pytest.mark.parametrize("scan", ["baseline", "group_1", "group_2", "group_5", "group_10"])
def test_the_loader_takes_little_cpu_beside_decoding(scan: str, summary: pd.DataFrame) -> None:
    """The test compares CPU time per image, which other work on the machine affects less than images/s."""
    of_loader, of_bound = (
        rate(summary, scan, column=column) for column in ("cpu_s_per_image", "bound_cpu_s_per_image")
    )
    assert of_loader <= MORE_THAN_DECODING * of_bound


@pytest.mark.parametrize("scan", ["baseline", "group_1", "group_5", "group_10"])
def test_a_throttle_leaves_what_its_bytes_allow(scan: str, summary: pd.DataFrame) -> None:
    limited = bounds(summary).set_index("loader").loc[scan]
    # Whole epochs within a stream exclude its start, when nothing is decoded yet, and its end.
    assert limited["images_per_s_median"] >= 0.8 * limited["bound_images_per_s"]
    assert limited["images_per_s_median"] <= 1.05 * limited["bound_images_per_s"]


def test_fewer_bytes_are_proportionally_sooner_there(summary: pd.DataFrame) -> None:
    gain = rate(summary, "group_1", "10 MiB/s") / rate(summary, "group_10", "10 MiB/s")
    assert gain >= 5


def test_a_record_is_one_request(summary: pd.DataFrame) -> None:
    gain = rate(summary, "group_1", "100 requests/s") / rate(summary, "image_folder_pil", "100 requests/s")
    assert gain >= 4
