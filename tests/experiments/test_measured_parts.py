"""Figures of measurements without runs: throttle, codec, encoding, measured roofline, quality."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from experiments.loaders.speed.pages import THROTTLED, draw_codec, draw_encode, draw_throttle, throttle_ratios
from experiments.pcr.model_validation import load_validation
from experiments.pcr.model_validation_page import draw_measured_roofline, roofline_points
from experiments.pcr.quality_overview import OVERVIEW_COLUMNS, draw_quality_overview, quality_overview
from pcr_exp.errors import RunError

RESULTS = Path(__file__).parents[2] / "results"


def test_every_measurement_of_the_throttle_is_a_dot() -> None:
    ratios = throttle_ratios(RESULTS / "throttle")
    tables = [pd.read_csv(RESULTS / "throttle" / name) for name in THROTTLED]
    assert len(ratios) == sum(map(len, tables)) and set(ratios["place"]) == set(THROTTLED.values())
    assert ratios["ratio"].tolist() == pytest.approx([ratio for table in tables for ratio in table["ratio"]])
    (ax,) = draw_throttle(ratios).axes
    dots = [line for line in ax.lines if len(line.get_xdata()) > 2]  # type: ignore[arg-type]
    assert sum(len(line.get_xdata()) for line in dots) == len(ratios)  # type: ignore[arg-type]
    assert "8 MiB/s, group 10" in set(ratios["setting"])


def test_bars_are_medians() -> None:
    rows = pd.read_csv(RESULTS / "codec_speed" / "codec.csv")
    encoding, decoding = draw_codec(rows).axes
    medians = rows.groupby("tensors", sort=False)[["encode_mb_per_s", "decode_mb_per_s"]].median()
    for ax, column in ((encoding, "encode_mb_per_s"), (decoding, "decode_mb_per_s")):
        widths = [bar.get_width() for bar in ax.patches]  # type: ignore[attr-defined]
        assert widths == pytest.approx(medians[column].tolist())
    encode = pd.read_csv(RESULTS / "records_speed" / "encode.csv")
    (ax,) = draw_encode(encode).axes
    assert len(ax.patches) == 4
    widest = max(bar.get_width() for bar in ax.patches)  # type: ignore[attr-defined]
    assert widest == pytest.approx(encode["two_cores_images_per_s"].median())


def test_the_roofline_has_what_was_measured() -> None:
    folder = RESULTS / "throughput_model/this_machine"
    cells = pd.read_csv(folder / "predicted_vs_measured_rates.csv")
    points = roofline_points(cells, load_validation(folder).rows)
    assert set(points["bandwidth_mib_per_s"]) == {2.5, 8.0} and len(points) == 2 * 3 * 5
    axes = draw_measured_roofline(points).axes
    assert len(axes) == 6
    drawn = [bars.lines[0].get_ydata()[0] for bars in axes[0].containers]  # type: ignore[attr-defined]
    rows = points[(points["bandwidth_mib_per_s"] == 2.5) & (points["num_processes"] == 1)]
    assert sorted(drawn) == pytest.approx(sorted(rows["images_per_s_median"]))


def test_the_overview_is_of_all_measured_datasets(tmp_path: Path) -> None:
    overview = quality_overview(RESULTS / "quality")
    assert list(overview.columns) == OVERVIEW_COLUMNS
    assert overview["dataset"].nunique() == 5 and "imagenet_native" in set(overview["dataset"])
    last = overview[overview["group"] == 10]
    assert (last["bytes_share"] == 1).all() and last["ms_ssim_mean"].tolist() == pytest.approx([1] * 5)
    kept, cost = draw_quality_overview(overview).axes
    assert len(kept.lines) == len(cost.lines) == 5
    with pytest.raises(RunError, match="holds no measurement"):
        quality_overview(tmp_path)
