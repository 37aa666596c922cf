"""The summary over seeds, and how it is shown."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from pcr_exp.analysis.render import to_markdown, to_rich
from pcr_exp.analysis.summary import summary_table

NAN = float("nan")


def run(scan: str, seed: int, seconds: float, **changes: object) -> dict:
    """One row of `load_runs`."""
    group = 10 if scan == "baseline" else int(scan.removeprefix("group_"))
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
        "target_top1": 0.5,
        "mean_image_bytes": 36_700.0 if scan == "baseline" else 3_000.0 * group,
        "images_per_s": 100.0 + seed,
        "storage_mib_per_s": 2.5,
        "wait_share": 0.75,
        "best_top1": 0.6 + seed / 100,
        "time_to_target_s": seconds,
        "hardware": "2 x Test CPU",
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
QUALITY = pd.DataFrame(
    {"dataset": ["cars", "cars", "cars", "photos"], "group": [2, 2, 10, 2], "ms_ssim": [0.9, 0.94, 1.0, 0.1]}
)


def test_one_row_per_scan_level_baseline_first_then_few_bytes_to_many() -> None:
    assert summary_table(RUNS)["scan"].tolist() == ["baseline", "group_1", "group_2", "group_10"]


def test_mean_spread_and_speed_up() -> None:
    table = summary_table(RUNS, QUALITY).set_index("scan")
    group_2 = table.loc["group_2"]
    assert group_2["n"] == 2
    assert group_2["time_to_target_s_mean"] == 25
    assert (group_2["time_to_target_s_min"], group_2["time_to_target_s_max"]) == (20, 30)
    assert group_2["speedup_over_baseline"] == pytest.approx(100 / 25)
    assert group_2["best_top1_mean"] == pytest.approx(0.605)
    assert group_2["ms_ssim"] == pytest.approx(0.92)
    assert table.loc["baseline", "ms_ssim"] == 1
    assert table.loc["baseline", "speedup_over_baseline"] == 1
    assert np.isnan(table.loc["group_1", "ms_ssim"])


def test_no_speed_up_unless_every_seed_of_both_reached_the_target() -> None:
    table = summary_table(RUNS).set_index("scan")
    assert table.loc["group_1", "num_reached"] == 1
    assert np.isnan(table.loc["group_1", "time_to_target_s_mean"])
    assert np.isnan(table.loc["group_1", "speedup_over_baseline"])

    slow_baseline = RUNS.assign(time_to_target_s=RUNS["time_to_target_s"].where(RUNS["scan"] != "baseline"))
    table = summary_table(slow_baseline)
    assert table["speedup_over_baseline"].isna().all()
    assert "| 25 (20 to 30) | baseline: not reached |" in to_markdown(table)


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
    text = to_markdown(summary_table(RUNS, QUALITY), unfinished)
    lines = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("|")}
    assert "| 25 (20 to 30) | 4.00 x |" in lines["group 2"]
    assert "| 6 kB | 0.920 |" in lines["group 2"]
    assert "60.5% (60.0% to 61.0%)" in lines["group 2"]
    assert "| reached by 1 of 2 | - |" in lines["group 1"]
    assert "| - |" in lines["group 1"]  # MS-SSIM of group 1 was not measured
    assert "target 50.0% validation top-1" in text
    assert "2 x Test CPU" in text
    assert "* `cars-interrupted`: interrupted" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_no_runs_are_said_so() -> None:
    nothing = summary_table(RUNS.iloc[:0])
    assert to_markdown(nothing) == "No finished runs.\n"
    assert to_rich(nothing) == []


def test_the_terminal_shows_the_same_cells() -> None:
    out = StringIO()
    Console(file=out, width=200).print(*to_rich(summary_table(RUNS, QUALITY)))
    for cell in ("25 (20 to 30)", "4.00 x", "reached by 1 of 2", "36.7 kB", "75.0%"):
        assert cell in out.getvalue()
