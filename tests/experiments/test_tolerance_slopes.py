"""Slopes of the kept share of a task's score over MS-SSIM."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tolerance_rows import N, measured

from experiments.pcr.tolerance_modes import scores_of, weights_of
from experiments.pcr.tolerance_slopes import _kept, kept_table, measured_in, slopes_page, write_slopes
from pcr_exp.analysis.primary_metric import as_written
from pcr_exp.analysis.tolerance import Measured
from pcr_exp.analysis.tolerance_page import load_tolerance, write_tolerance
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.tolerance.classifier import Predictions

RESULTS = Path(__file__).parents[2] / "results" / "tolerance"
QUALITY = np.array([0.6, 0.8, 0.9, 0.95, 1.0])


def five_groups(wrong: list[int]) -> Measured:
    """Return two equal classes with `wrong` misclassified images per group, and none if used at all scans."""
    found = measured({}, groups=[1, 2, 3, 5, 10])
    classes = np.broadcast_to(found.labels, (5, 5, N)).copy()
    for place, count in enumerate(wrong):
        classes[place, place, :count] = 1 - found.labels[:count]
    odds = np.full(classes.shape, np.nan, dtype=np.float32)
    similarity = QUALITY[:, None].repeat(7, axis=1).astype(np.float32)
    sizes = np.array([[1000], [2000], [3000], [4000], [9000]]).repeat(N, axis=1)
    found = replace(found, group_bytes=sizes)
    return replace(found, predictions=Predictions(classes, odds, np.ones((5, 5))), ms_ssim=similarity)


def test_a_slope_is_of_what_there_is_to_lose() -> None:
    """Chance level is 0.5: with 160 of 400 wrong, (0.6 - 0.5) / 0.5 = 0.2 of the score above it is kept."""
    table = kept_table([five_groups([160, 80, 40, 20, 0])]).set_index(["deployment", "group"])
    kept = table.loc["same", "kept"]
    np.testing.assert_allclose(kept, [0.2, 0.6, 0.8, 0.9, 1.0])
    found = table.loc[("same", 1)]
    assert found["slope"] == pytest.approx(stats.linregress(QUALITY, kept).slope) == pytest.approx(2)
    assert found["r"] == pytest.approx(1)
    assert found["slope_low"] < 2 < found["slope_high"] < 2.4
    flat = table.loc[("full", 1)]
    assert flat["slope"] == 0 and np.isnan(flat["r"]) and (table.loc["full", "kept"] == 1).all()


def test_a_bend_is_how_far_scores_leave_the_chord() -> None:
    """1 - 5 (1 - q)^2 rises 0.2 above its chord; the bend is that height over the change of the line."""
    on_curve = 200 * 5 * (1 - QUALITY) ** 2  # misclassified images, of 400
    table = kept_table([five_groups([round(wrong) for wrong in on_curve])])
    found = table[table["deployment"] == "same"].iloc[0]
    change = stats.linregress(QUALITY, 1 - on_curve / 200).slope * 0.4
    assert found["curvature"] == pytest.approx(5 * 0.2**2 / change, rel=0.01)
    assert 0 < found["curvature_low"] < found["curvature"] < found["curvature_high"]
    line = kept_table([five_groups([160, 80, 40, 20, 0])])
    straight = line[line["deployment"] == "same"].iloc[0]
    assert straight["curvature"] == pytest.approx(0, abs=1e-6)
    assert straight["curvature_low"] < 0 < straight["curvature_high"]


def test_an_interval_holds_what_other_images_give() -> None:
    """120 of 400 wrong have a binomial spread, which doubles because only half of the score can be lost."""
    table = kept_table([five_groups([120, 0, 0, 0, 0])]).set_index(["deployment", "group"])
    half = 2 * 1.96 * np.sqrt(0.3 * 0.7 / N)
    found = table.loc[("same", 1)]
    assert found["kept_low"] == pytest.approx(0.4 - half, abs=0.02)
    assert found["kept_high"] == pytest.approx(0.4 + half, abs=0.02)


def test_resamples_with_nothing_to_lose_say_nothing() -> None:
    """With 190 of 400 wrong at all scans, one resample in six is at chance level or below."""
    found = five_groups([199, 198, 196, 194, 190])
    at_chance = scores_of(found, 10, "same", weights_of(found)) <= 0.5
    assert 0.05 < at_chance.mean() < 0.4
    np.testing.assert_array_equal(np.isnan(_kept(found, "same")[0]), at_chance)


def test_files_follow_from_folders(tmp_path: Path) -> None:
    write_tolerance(tmp_path / "task", five_groups([160, 80, 40, 20, 0]), {})
    assert "MS-SSIM" in (tmp_path / "task" / "tolerance.md").read_text()
    kept = write_slopes([tmp_path / "task"], tmp_path / "out")
    assert (tmp_path / "out" / "slopes.png").exists()
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "out" / "slopes.csv"), as_written(kept))
    (line,) = (tmp_path / "out" / "slopes.md").read_text().splitlines()[3:]
    assert line.startswith("| it class | top-1 | 400 | the same group | 5 | 0.600 | 2.00 (1.")


def test_what_has_no_slope_is_refused() -> None:
    whole = five_groups([0] * 5)
    with pytest.raises(ConfigError, match="class of it: num_similarity_images=0, so its MS-SSIM is not"):
        kept_table([replace(whole, ms_ssim=None)])
    with pytest.raises(ConfigError, match=r"groups=\[1, 5, 10\]; a line wants 5 or more"):
        kept_table([replace(measured({}), ms_ssim=np.ones((3, 4), np.float32))])
    with pytest.raises(ConfigError, match=r"at all scans the score is 0\.500, guessing reaches 0\.500"):
        kept_table([five_groups([200, 200, 200, 200, 200])])


def test_the_committed_slopes_follow_from_the_committed_predictions() -> None:
    if not (RESULTS / "slopes.csv").exists():
        pytest.skip("results/tolerance has no slopes yet")
    kept = kept_table([load_tolerance(folder) for folder in measured_in(RESULTS)])
    pd.testing.assert_frame_equal(as_written(kept), pd.read_csv(RESULTS / "slopes.csv"))
    assert slopes_page(kept) == (RESULTS / "slopes.md").read_text()
