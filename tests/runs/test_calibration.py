"""The storage limit that fits a machine: computed, measured by a real epoch, and saved."""

import json
from pathlib import Path

import pytest

from pcr_exp.cli.demo import Calibration, bandwidth_for, calibrated
from pcr_exp.errors import RunError
from pcr_exp.runs.rows import read_rows
from tests.runs.conftest import Configure

GOOD = {"images_per_s": 100.0, "bytes_per_image": 2**20 / 4, "share": 0.5, "bandwidth_mib_per_s": 12.0}


@pytest.mark.parametrize(
    ("images_per_s", "bytes_per_image", "share", "mib_per_s"),
    [
        (256, 16 * 2**10, 0.5, 2.0),
        (1000, 2**20, 0.1234, 120.0),
        (3.0, 2**20, 0.5, 1.5),
        (1, 2**10, 0.5, 49e-5),
    ],
)
def test_the_bandwidth_supplies_the_share_to_two_digits(
    images_per_s: float, bytes_per_image: float, share: float, mib_per_s: float
) -> None:
    assert bandwidth_for(images_per_s, bytes_per_image, share) == mib_per_s


def test_an_epoch_is_trained_without_a_limit_and_only_once(configure: Configure, tmp_path: Path) -> None:
    config = configure(storage__bandwidth_mib_per_s=0.5)
    path = tmp_path / "storage.json"
    measured = calibrated(config, 0.5, path)
    (run,) = (tmp_path / "calibration").glob("*/manifest.json")
    manifest = json.loads(run.read_text())
    rows = [row for row in read_rows(run.with_name("rows.jsonl")) if row["kind"] == "train"]
    assert measured.images_per_s in [row["images_per_s"] for row in rows]
    assert measured.bytes_per_image == manifest["mean_prefix_bytes"]
    assert "unlimited" in manifest["run_id"]
    assert rows[-1]["epoch"] == 1
    wanted = bandwidth_for(measured.images_per_s, measured.bytes_per_image, 0.5)
    assert measured.bandwidth_mib_per_s == wanted
    before = path.read_bytes()
    assert calibrated(config, 0.5, path) == measured
    assert path.read_bytes() == before


def test_a_calibration_is_read_as_it_was_written(configure: Configure, tmp_path: Path) -> None:
    path = tmp_path / "storage.json"
    path.write_text(json.dumps(GOOD))
    assert calibrated(configure(), 0.5, path) == Calibration(**GOOD)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is damaged"),
        (json.dumps({"images_per_s": 3}), "is damaged"),
        (json.dumps(GOOD | {"bandwidth_mib_per_s": "fast"}), "is damaged"),
        (json.dumps(GOOD | {"bandwidth_mib_per_s": 0}), "wanted a rate above 0"),
        (json.dumps(GOOD | {"share": 0.25}), "baseline_share=0.25, but it is 0.5 now"),
    ],
)
def test_a_calibration_that_cannot_be_used_is_refused(
    configure: Configure, tmp_path: Path, content: str, said: str
) -> None:
    path = tmp_path / "storage.json"
    path.write_text(content)
    with pytest.raises(RunError, match=said) as error:
        calibrated(configure(), 0.5, path)
    assert str(path) in str(error.value)
