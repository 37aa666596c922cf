"""Reporting rules for seconds, times to a target and speed-ups; and which runs shared a machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.reporting_rules import (
    MIXED,
    NOT_EXCLUSIVE,
    UNLIKE,
    UNLIMITED,
    all_hardware,
    is_exclusive,
    others_cpu_share,
    speedup_excluded_because,
    time_to_excluded_because,
    timing_exclusion,
)
from pcr_exp.analysis.runs import CONCURRENT_RUNS, Run, read_runs, shared_in_time
from pcr_exp.runs.manifest import Manifest

MakeRun = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path, make_run: MakeRun) -> Run:
    make_run(tmp_path, "group_2")
    return read_runs(tmp_path)[0]


def stored(run: Run, **storage: Any) -> Run:
    return replace(run, config={**run.config, "storage": {**run.config["storage"], **storage}})


NO_LIMIT = {"bandwidth_mib_per_s": None, "latency_ms": 0.0, "requests_per_s": None}


def test_seconds_want_storage_that_is_limited(run: Run) -> None:
    assert timing_exclusion(run) == ""
    assert timing_exclusion(stored(run, **NO_LIMIT)) == UNLIMITED
    for limit in ("bandwidth_mib_per_s", "latency_ms", "seek_ms", "requests_per_s"):
        assert timing_exclusion(stored(run, **(NO_LIMIT | {limit: 5.0}))) == "", limit


def test_or_a_limited_network_between_several_processes(run: Run) -> None:
    alone = stored(run, **NO_LIMIT)
    network = {"bandwidth_mbit_per_s": 10.0, "latency_ms": 0.0}
    team = replace(alone, config={**alone.config, "world_size": 2, "network": network})
    assert timing_exclusion(team) == ""
    unlimited = {**team.config, "network": {"bandwidth_mbit_per_s": None, "latency_ms": 0.0}}
    assert timing_exclusion(replace(team, config=unlimited)) == UNLIMITED
    assert timing_exclusion(replace(team, config={**team.config, "world_size": 1})) == UNLIMITED


def test_seconds_want_a_machine_of_ones_own(run: Run) -> None:
    assert timing_exclusion(replace(run, shared_machine="tests ran beside it")) == "tests ran beside it"


def test_seconds_want_sessions_on_like_hardware(run: Run) -> None:
    mixed = replace(run, manifest=replace(run.manifest, timing_is_mixed=True))
    assert timing_exclusion(mixed) == MIXED


def beside(run: Run, *shares: float | None) -> Run:
    """Return the run with train rows ten seconds apart that hold these CPU shares of other processes."""
    rows = [
        {**run.rows[0], "kind": "train", "wall_s": 10.0 * number, "others_cpu_share": share}
        for number, share in enumerate(shares, start=1)
    ]
    return replace(run, rows=[*rows, *run.eval_rows])


def test_what_others_took_of_the_cpu_counts_by_the_time_that_it_is_of(run: Run) -> None:
    assert pd.isna(others_cpu_share(run.rows))
    assert others_cpu_share(beside(run, 0.1, None, 0.4).rows) == pytest.approx((0.1 * 10 + 0.4 * 20) / 30)
    assert pd.isna(others_cpu_share(beside(run, None, None).rows)), "too short to be told"


def test_seconds_want_a_cpu_that_others_leave_alone(run: Run) -> None:
    for shares, exclusive in (((0.05,), True), ((0.0, 0.16), False), ((), None)):
        found = beside(run, *shares)
        assert is_exclusive(found) is exclusive
        assert timing_exclusion(found) == (NOT_EXCLUSIVE if exclusive is False else "")
    quiet, crowded = (run_frame([beside(run, share)]) for share in (0.01, 0.2))
    assert quiet["hardware"].iloc[0].endswith(" cores, exclusive")
    assert crowded["hardware"].iloc[0].endswith(" cores, shared with others")
    assert (
        speedup_excluded_because(crowded, quiet) == speedup_excluded_because(quiet, crowded) == NOT_EXCLUSIVE
    )
    assert speedup_excluded_because(quiet, quiet) == ""


def test_seconds_of_runs_that_had_company_are_said_where_that_is_asked_for(run: Run) -> None:
    crowded = replace(beside(run, 0.2), exclusive_only=False)
    assert timing_exclusion(crowded) == ""
    assert run_frame([crowded])["hardware"].iloc[0].endswith(" cores, shared with others")


@pytest.mark.parametrize(("target", "majority"), [(0.75, 0.907), (0.5, 0.5)])
def test_a_target_at_or_below_the_majority_class_is_refused(target: float, majority: float) -> None:
    assert f"always saying the most frequent class ({100 * majority:.1f}%" in time_to_excluded_because(
        target, majority
    )


@pytest.mark.parametrize("majority", [0.37, None, float("nan")])
def test_a_target_above_it_or_above_an_unknown_one_is_not(majority: float | None) -> None:
    assert time_to_excluded_because(0.55, majority) == ""


def test_a_time_to_the_majority_class_is_in_no_table(run: Run) -> None:
    (row,) = run_frame([replace(run, manifest=replace(run.manifest, majority_share=0.6))]).to_dict("records")
    assert row["final_score"] == 0.9 and "most frequent class (60.0%" in row["target_excluded_because"]
    assert row["time_to_target_s"] != row["time_to_target_s"]
    assert row["epochs_to_target"] != row["epochs_to_target"]


def rows(timing_excluded_because: str = "", timing: str = "a") -> pd.DataFrame:
    return pd.DataFrame({"timing_excluded_because": [timing_excluded_because], "timing": [timing]})


def test_a_speed_up_wants_both_to_be_said_and_alike() -> None:
    assert speedup_excluded_because(rows(), rows()) == ""
    assert (
        speedup_excluded_because(rows("shared"), rows())
        == speedup_excluded_because(rows(), rows("shared"))
        == "shared"
    )
    assert speedup_excluded_because(rows(timing="b"), rows()) == UNLIKE
    assert speedup_excluded_because(rows(), rows().iloc[:0]) == "nothing to compare with"


def between(run: Run, start: str, end: str | None, *, run_id: str, host: str = "ab12cd34") -> Manifest:
    """Return the manifest with one session, from `start` to `end`."""
    times = {"started_at": f"2026-01-01T{start}+00:00", "finished_at": end and f"2026-01-01T{end}+00:00"}
    (session, *_) = run.manifest.sessions
    return replace(run.manifest, run_id=run_id, sessions=[replace(session, host=host, **times)])


def test_runs_that_overlap_in_time_shared_the_machine(run: Run) -> None:
    manifests = [
        between(run, "10:00:00", "10:30:00", run_id="first"),
        between(run, "10:29:59", "10:40:00", run_id="beside it"),
        between(run, "10:40:00", "10:50:00", run_id="right after"),
        between(run, "10:45:00", "10:46:00", run_id="elsewhere", host="0f0f0f0f"),
        between(run, "10:46:00", None, run_id="killed"),
    ]
    assert shared_in_time(manifests) == {"first", "beside it"}


def test_a_sweep_of_several_jobs_at_once_has_no_seconds(tmp_path: Path, make_run: MakeRun) -> None:
    folders = [make_run(tmp_path, scan, seed=seed) for scan in ("baseline", "group_2") for seed in (0, 1)]
    for folder in folders:
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text())
        started = "2026-01-01T10:00:00+00:00" if manifest["seed"] else "2026-01-01T12:00:00+00:00"
        times = {"started_at": started, "finished_at": started[:14] + "30:00+00:00"}
        manifest["sessions"] = [session | times for session in manifest["sessions"]]
        path.write_text(json.dumps(manifest))
    assert {run.shared_machine for run in read_runs(tmp_path)} == {CONCURRENT_RUNS}
    assert run_frame(read_runs(tmp_path))["time_to_target_s"].isna().all()


def test_each_machine_of_runs_and_of_summaries_is_named_once() -> None:
    rows = pd.DataFrame({"hardware": ["B, 2 cores", "A, 2 cores / B, 2 cores", "A, 2 cores"]})
    assert all_hardware(rows) == "A, 2 cores / B, 2 cores"
