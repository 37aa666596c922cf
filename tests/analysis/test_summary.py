"""The summary over seeds and its Markdown."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from pcr_exp.analysis.summary import summary_table, to_markdown, to_rich

NAN = float("nan")


def run(scan: str, seed: int, seconds: float, **changes: object) -> dict:
    """One row of `run_frame`."""
    group = 1 if scan == "baseline" else int(scan.removeprefix("group_"))
    qualities = {"baseline": 1.0, "group_2": 0.92, "group_10": 1.0}
    return {
        "run_id": f"{scan}-s{seed}",
        "dataset": "cars",
        "label": "make",
        "model": "resnet18",
        "storage": "hdd",
        "setting": "1a2b3c4d",
        "scan": scan,
        "encoding": "baseline" if scan == "baseline" else "pcr",
        "group": group,
        "seed": seed,
        "target_score": 0.5,
        "headline": "top1",
        "mean_image_bytes": 36_700.0 if scan == "baseline" else 3_000.0 * group,
        "images_per_s": 100.0 + seed,
        "storage_mib_per_s": 2.5,
        "wait_share": 0.75,
        "final_score": 0.6 + seed / 100,
        "best_score": 0.7,
        "epochs_to_target": seconds / 10,
        "time_to_target_s": seconds,
        "hardware": "2 x Test CPU",
        "timing": "0a0a0a0a",
        "timing_excluded_because": "",
        "target_excluded_because": "",
        "majority_share": 0.25,
        "num_classes": 7,
        "ms_ssim": qualities.get(scan, NAN),
        "num_scales": 4,
        "ms_ssim_of": qualities.get(scan, NAN) and "crops of 64 px",
        "predictions": None,
        **changes,
    }


RUNS = pd.DataFrame(
    [
        run("group_10", 0, 110),
        run("group_2", 0, 20),
        run("group_2", 1, 30),
        run("group_1", 0, NAN),
        run("group_1", 1, 12),
        run("baseline", 0, 90),
        run("baseline", 1, 110),
    ]
)
UNLIMITED = "storage was not limited"


def test_one_row_per_scan_level_baseline_first_then_few_bytes_to_many() -> None:
    assert summary_table(RUNS)["scan"].tolist() == ["baseline", "group_1", "group_2", "group_10"]


def test_mean_spread_and_speed_up() -> None:
    table = summary_table(RUNS).set_index("scan")
    group_2 = table.loc["group_2"]
    assert group_2["n"] == 2
    assert group_2["time_to_target_s_mean"] == 25
    assert (group_2["time_to_target_s_min"], group_2["time_to_target_s_max"]) == (20, 30)
    assert group_2["speedup_over_baseline"] == pytest.approx((90 / 20 + 110 / 30) / 2), "of one seed"
    assert (group_2["final_score_mean"], group_2["best_score_mean"]) == (pytest.approx(0.605), 0.7)
    assert group_2["ms_ssim"] == pytest.approx(0.92)
    assert table.loc["baseline", "ms_ssim"] == 1
    assert table.loc["baseline", "speedup_over_baseline"] == 1
    assert np.isnan(table.loc["group_1", "ms_ssim"])


def test_no_speed_up_unless_every_seed_of_both_reached_the_target() -> None:
    table = summary_table(RUNS).set_index("scan")
    assert table.loc["group_1", "num_reached"] == 1
    assert np.isnan(table.loc["group_1", "time_to_target_s_mean"])
    assert np.isnan(table.loc["group_1", "speedup_over_baseline"])

    others = RUNS["scan"] != "baseline"
    slow_baseline = RUNS.assign(
        **{key: RUNS[key].where(others) for key in ("time_to_target_s", "epochs_to_target")}
    )
    table = summary_table(slow_baseline)
    assert table["speedup_over_baseline"].isna().all()
    assert "| 25 (20 to 30) | baseline: not reached |" in to_markdown(table)

    others = others | (RUNS["seed"] == 0)
    one_missed = RUNS.assign(
        **{key: RUNS[key].where(others) for key in ("time_to_target_s", "epochs_to_target")}
    )
    assert summary_table(one_missed)["speedup_over_baseline"].isna().all()


def test_quality_over_runs_is_unknown_if_one_was_not_measured_and_has_the_fewest_scales() -> None:
    first = (RUNS["scan"] == "group_2") & (RUNS["seed"] == 0)
    runs = RUNS.assign(num_scales=RUNS["num_scales"].mask(first, 3), ms_ssim=RUNS["ms_ssim"].mask(first))
    row = summary_table(runs).set_index("scan").loc["group_2"]
    assert row["num_scales"] == 3 and np.isnan(row["ms_ssim"])


def test_ms_ssim_is_named_by_what_it_is_of() -> None:
    table = summary_table(RUNS.assign(ms_ssim_of="crops of 64 px"))
    assert set(table["ms_ssim_of"]) == {"crops of 64 px"}
    assert "| MS-SSIM (crops of 64 px) |" in to_markdown(table)
    several = RUNS.assign(ms_ssim_of=np.where(RUNS["scan"] == "group_2", "whole images", "all scans"))
    assert "| MS-SSIM (whole images) |" in to_markdown(summary_table(several))


def test_no_two_tables_have_one_title() -> None:
    """Titles name the storage, the settings that differ, or, if these are unknown, the setting's key."""
    other = pd.concat([RUNS.assign(setting=key) for key in ("eeeeeeee", "ffffffff")])
    runs = pd.concat([RUNS, RUNS.assign(storage="ssd"), other], ignore_index=True)
    text = to_markdown(summary_table(runs), words={"eeeeeeee": "decode=scaled", "1a2b3c4d": "as it is"})
    titles = [line for line in text.splitlines() if line.startswith("#")]
    assert len(titles) == len(set(titles)) == 4
    assert "### cars · make · resnet18 · decode=scaled · storage hdd" in titles
    alone = to_markdown(summary_table(RUNS))
    assert alone.startswith("### cars · make · resnet18\n")


def test_runs_of_different_settings_are_not_averaged() -> None:
    other = pd.DataFrame([run("group_2", 0, 5, setting="ffffffff"), run("baseline", 0, 5, storage="ssd")])
    table = summary_table(pd.concat([RUNS, other], ignore_index=True))
    assert len(table) == 6
    alone = table[table["setting"] == "ffffffff"]
    assert alone["n"].tolist() == [1]
    assert np.isnan(alone["speedup_over_baseline"].item())
    assert "| no baseline |" in to_markdown(alone)


def test_markdown_says_what_was_not_reached_and_who_did_not_finish() -> None:
    unfinished = pd.DataFrame([{"run_id": "cars-interrupted", "status": "interrupted"}])
    text = to_markdown(summary_table(RUNS), unfinished)
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("|")}
    assert "| 25 (20 to 30) | 4.08 x |" in lines["group 2"]
    assert "| 6 kB | 0.920 | 4 |" in lines["group 2"]
    assert "| 60.5% (60.0% to 61.0%) | 70.0% | 25.0% |" in lines["group 2"], "last, its best, majority class"
    assert "| reached by 1 of 2 | - |" in lines["group 1"]
    assert "| 3 kB | - | 4 |" in lines["group 1"]  # its MS-SSIM was not measured
    assert "target 50.0% validation top-1" in text
    assert "2 x Test CPU" in text
    assert "* `cars-interrupted`: interrupted" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_accuracy_differences_are_paired_by_seed_with_95_percent_intervals() -> None:
    gains = {0: 0.02, 1: 0.06}
    runs = [run("baseline", seed, 90, final_score=0.5 + seed / 10) for seed in gains]
    runs += [run("group_2", seed, 20, final_score=0.5 + seed / 10 + gain) for seed, gain in gains.items()]
    table = summary_table(pd.DataFrame(runs)).set_index("scan")
    # Student's t for two values: 12.706 standard errors of 0.02.
    assert table.loc["group_2", "difference_mean"] == pytest.approx(0.04)
    assert table.loc["group_2", "difference_ci95"] == pytest.approx(12.7062 * 0.02, rel=1e-4)
    assert "| +4.0 ± 25.4 |" in to_markdown(table.reset_index())


def test_one_run_alone_is_marked() -> None:
    text = to_markdown(summary_table(pd.DataFrame([run("baseline", 0, 90), run("group_2", 0, 20)])))
    assert "| group 2 | 1 † |" in text and "| +0.0 † |" in text
    assert "† n = 1: one run, with no spread and no interval." in text


def test_seconds_that_may_not_be_said_are_dashes_that_say_why() -> None:
    table = summary_table(RUNS.assign(timing_excluded_because=UNLIMITED, time_to_target_s=NAN))
    speeds = ["images_per_s_mean", "storage_mib_per_s_mean", "wait_share_mean", "time_to_target_s_mean"]
    assert table[[*speeds, "speedup_over_baseline"]].isna().all(axis=None)
    text = to_markdown(table)
    (line,) = [line for line in text.splitlines() if line.startswith("| group 2 ")]
    assert line.split(" | ")[5:8] == ["- ¹"] * 3 and line.endswith("| - ¹ | - ¹ |")
    assert "¹ Storage was not limited." in text


def test_a_target_of_guessing_has_no_time() -> None:
    why = "a target of 50% is reached by always saying the most frequent class"
    text = to_markdown(
        summary_table(RUNS.assign(target_excluded_because=why, time_to_target_s=NAN, epochs_to_target=NAN))
    )
    (line,) = [line for line in text.splitlines() if line.startswith("| group 2 ")]
    assert line.endswith("| - ¹ | - ¹ |") and "¹ A target of 50% is reached by always" in text


def test_seconds_of_unlike_hardware_are_rows_apart_and_accuracy_is_one() -> None:
    slow = RUNS.assign(
        timing="1b1b1b1b", hardware="a slow one", time_to_target_s=4 * RUNS["time_to_target_s"]
    )
    table = summary_table(pd.concat([RUNS, slow], ignore_index=True))
    group_2 = table[table["scan"] == "group_2"].set_index("timing")
    assert group_2["n"].tolist() == [2, 2], "one seed on two machines learned the same"
    assert group_2["time_to_target_s_mean"].to_dict() == {"0a0a0a0a": 25, "1b1b1b1b": 100}
    assert group_2["speedup_over_baseline"].tolist() == pytest.approx([4.083333] * 2), (
        "over the baseline beside it"
    )
    assert "a slow one; timing 1b1b1b1b" in to_markdown(table)


def test_a_baseline_on_other_hardware_gives_no_speed_up() -> None:
    is_baseline = RUNS["scan"] == "baseline"
    table = summary_table(RUNS.assign(timing=RUNS["timing"].where(~is_baseline, "1b1b1b1b")))
    assert table.loc[table["scan"] != "baseline", "speedup_over_baseline"].isna().all()


def test_no_runs_are_said_so() -> None:
    nothing = summary_table(RUNS.iloc[:0])
    assert to_markdown(nothing) == "No finished runs.\n"
    assert to_rich(nothing) == []


def test_the_terminal_shows_the_same_cells() -> None:
    out = StringIO()
    Console(file=out, width=200).print(*to_rich(summary_table(RUNS)))
    for cell in ("25 (20 to 30)", "4.08 x", "reached by 1 of 2", "36.7 kB", "75.0%"):
        assert cell in out.getvalue()
