"""A run's MS-SSIM is of its own images and decoding. It is looked up by keys, never by a name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pcr_exp.analysis.frame import BY_DEFINITION, WHOLE, crops_of, quality_of
from pcr_exp.analysis.runs import Run, read_runs
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.runs.quality import GroupQuality

pytestmark = pytest.mark.usefixtures("light_figures")

MakeRun = Callable[..., Path]
FILTER = LoaderConfig().antialias
ENTRY = {
    "group": 2,
    "decode": "scaled",
    "antialias": FILTER,
    "ms_ssim_mean": 0.9,
    "ms_ssim_std": 0.02,
    "num_images": 200,
    "num_scales": 3,
    "bytes_per_image": 2000.0,
}


def made(root: Path, make_run: MakeRun, scan: str = "group_2", **manifest: Any) -> Run:
    make_run(root, scan)
    run = read_runs(root)[0]
    return replace(
        run, manifest=replace(run.manifest, train_fingerprint="train0", val_fingerprint="val0", **manifest)
    )


def with_quality(run: Run, entry: dict[str, Any]) -> Run:
    return replace(run, manifest=replace(run.manifest, quality=[GroupQuality(**entry)]))


@pytest.fixture
def run(tmp_path: Path, make_run: MakeRun) -> Run:
    """A run at group 2, decoded with `scaled`."""
    return made(tmp_path, make_run)


def sets(**changes: Any) -> pd.DataFrame:
    row = {
        "dataset": "photos",
        "split": "val",
        "fingerprint": "val0",
        "decode": "scaled",
        "antialias": FILTER,
    }
    row |= {"group": 2, "ms_ssim": 0.8, "num_scales": 5}
    return pd.DataFrame([row | changes])


def test_its_own_measurement_comes_first(run: Run) -> None:
    found = quality_of(with_quality(run, ENTRY), sets())
    assert (found.ms_ssim, found.num_scales, found.measured_on) == (0.9, 3, crops_of(64))


@pytest.mark.parametrize("changes", [{"group": 5}, {"decode": "unsmoothed"}, {"antialias": not FILTER}])
def test_of_another_group_mode_or_filter_it_is_not_its_own(run: Run, changes: dict[str, Any]) -> None:
    assert math.isnan(quality_of(with_quality(run, ENTRY | changes), None).ms_ssim)


def test_a_set_is_found_by_the_records_key(run: Run) -> None:
    for split in ("train0", "val0"):
        found = quality_of(run, sets(fingerprint=split, dataset="another name"))
        assert (found.ms_ssim, found.num_scales, found.measured_on) == (0.8, 5, WHOLE)


@pytest.mark.parametrize(
    "changes", [{"fingerprint": "of others"}, {"decode": "libjpeg"}, {"antialias": not FILTER}, {"group": 1}]
)
def test_a_set_of_other_images_or_decoded_otherwise_is_not(run: Run, changes: dict[str, Any]) -> None:
    """Even if the name is the same, as for two folder datasets or two photograph sets of one publisher."""
    assert math.isnan(quality_of(run, sets(**changes)).ms_ssim)


def test_a_run_without_keys_finds_nothing(run: Run) -> None:
    nameless = replace(run, manifest=replace(run.manifest, train_fingerprint=None, val_fingerprint=None))
    assert math.isnan(quality_of(nameless, sets()).ms_ssim)
    assert math.isnan(quality_of(nameless, sets(fingerprint=None)).ms_ssim)


@pytest.mark.parametrize("scan", ["baseline", "group_10"])
def test_all_scans_are_all_there_is(tmp_path: Path, make_run: MakeRun, scan: str) -> None:
    found = quality_of(made(tmp_path, make_run, scan), sets())
    assert (found.ms_ssim, found.measured_on) == (1.0, BY_DEFINITION)


def test_a_policy_has_no_one_quality(tmp_path: Path, make_run: MakeRun) -> None:
    run = made(tmp_path, make_run, "schedule", scan_group=2)
    assert math.isnan(quality_of(with_quality(run, ENTRY), sets()).ms_ssim)


def test_what_could_not_be_measured_is_nothing(run: Run) -> None:
    tiny = ENTRY | {"ms_ssim_mean": None, "num_scales": 0}
    assert math.isnan(quality_of(with_quality(run, tiny), sets()).ms_ssim)
