"""Decisions of a scan policy during a run, the bytes that it saved, and the figure of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from pcr_exp.analysis.caption import Caption, of_runs
from pcr_exp.analysis.figure import BELOW, MAX_CURVES, footer, note, panel_title, panels, save_figure
from pcr_exp.analysis.frame import has_policy, seconds_of
from pcr_exp.analysis.page import Output
from pcr_exp.analysis.reporting_rules import NAN
from pcr_exp.analysis.style import INK, MUTED, color_in_script, group_marker, style
from pcr_exp.analysis.tables import with_unit
from pcr_exp.config.describe import script_in
from pcr_exp.config.scan_scripts import NUM_GROUPS
from pcr_exp.policies.policy import describe_measure
from pcr_exp.policies.schedule import probabilities
from pcr_exp.runs.rows import Row
from pcr_exp.system import MIB
from pcr_exp.system.words import counted

TRACE_COLUMNS = [
    *("epoch", "step", "seconds", "group", "measure", "candidate", "score"),
    *("record_bytes", "probe_s", "probe_bytes", "run_saved_bytes", "run_saved_share", "threshold"),
]
_SUPPLY = "images_per_s"
_WITH_THRESHOLD = ("ms_ssim", "cosine")
"""Measures that a policy compares with its `threshold`."""
DRAWN_CANDIDATES = (1, 2, 5, 10)
"""Candidates that are drawn if there are more than MAX_CURVES."""


def policy_trace(rows: Sequence[Row], threshold: float | None = None) -> pd.DataFrame:
    """Return one row per decision and compared candidate; a decision without candidates has one row.

    `epoch` is the number of epochs completed. `seconds` (train_s + wait_s + probe_s), `record_bytes` and the
    probe columns are as of the decision. `run_saved_bytes` and `run_saved_share` are of the whole run
    (`saved_by`), the same in every row. `threshold` is the score that a candidate has to reach: the policy's
    own (the argument), or for the measure `images_per_s` the images/s of training until then; else NaN.
    """
    decisions = [row for row in rows if row["kind"] == "policy"]
    if not decisions:
        return pd.DataFrame(columns=TRACE_COLUMNS)
    saved_bytes, saved_share = saved_by(rows)
    whole = {"run_saved_bytes": saved_bytes, "run_saved_share": saved_share}
    trace = [
        entry
        for row in decisions
        for entry in _entries(row, {**whole, "threshold": _threshold_of(row, threshold)})
    ]
    return pd.DataFrame(trace, columns=TRACE_COLUMNS)


def saved_by(rows: Sequence[Row]) -> tuple[float, float]:
    """Return how many bytes of all scans a run did not read, and their share. Probes count as read."""
    last = rows[-1]
    full_bytes = last.get("full_bytes")
    if not full_bytes:
        return NAN, NAN  # older runs did not count it
    saved = full_bytes - last["record_bytes"] - last["probe_bytes"]
    return saved, saved / full_bytes


def _threshold_of(decision: Row, threshold: float | None) -> float:
    if decision["measure"] == _SUPPLY and decision["train_s"] > 0:
        return float(decision["samples_seen"] / decision["train_s"])
    return threshold if threshold is not None and decision["measure"] in _WITH_THRESHOLD else NAN


def _entries(row: Row, whole: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    decision = {**row, **whole, "seconds": seconds_of(row)}
    for candidate, score in row["scores"].items() or [(None, None)]:
        entry = {**decision, "candidate": None if candidate is None else int(candidate), "score": score}
        yield {column: entry[column] for column in TRACE_COLUMNS}


def drawn_shares(scan: Mapping[str, Any]) -> dict[int, float]:
    """Return each group's share of records if every record draws its own group (`mixture`), else {}."""
    if scan["name"] != "mixture":
        return {}
    shares = probabilities(scan["candidates"], scan["group"], scan["weights"])
    return {group: float(share) for group, share in zip(scan["candidates"], shares, strict=True) if share}


def draw_policy_trace(
    trace: pd.DataFrame, policy: str, end_s: float, shares: Mapping[int, float] | None = None
) -> Figure:
    """Draw the chosen group (left) and each candidate's score (right, if any were compared) over seconds.

    Probes are grey bands as wide as their duration. Thresholds are dashed. With more than MAX_CURVES
    candidates, only those in DRAWN_CANDIDATES are drawn.

    Args:
        trace: The `policy_trace` of one run.
        policy: The policy's name, with the changes to its preset.
        end_s: The run's train_s + wait_s + probe_s, where the last choice ends.
        shares: From `drawn_shares`: the groups that records drew throughout. They replace the chosen group,
            which is only the most likely one.
    """
    with style():
        scored = trace.dropna(subset=["candidate"])
        figure, axes = panels(2 if len(scored) else 1)
        decisions = trace.drop_duplicates(["step", "group", "measure"])
        script = script_in(policy)
        if shares:
            _draw_shares(axes[0], shares, script, end_s)
        else:
            _draw_groups(axes[0], decisions, script, end_s)
        _label_groups(axes[0])
        share = decisions["run_saved_share"].iloc[-1]
        saved = "bytes saved: not known" if share != share else f"{share:.0%} of all bytes saved, probes paid"
        decided = "each record draws its group" if shares else counted(len(decisions), "decision")
        panel_title(axes[0], policy, f"n = 1 run, {decided}; whole run:\n{saved}")
        if len(scored):
            _draw_scores(axes[1], scored, script, end_s)
            probes = decisions.iloc[-1]
            cost = f"probes: {probes['probe_s']:.3g} s, {probes['probe_bytes'] / MIB:.3g} MiB"
            panel_title(axes[1], " ", f"n = {counted(scored['step'].nunique(), 'comparison')}; {cost}")
        for ax in axes:
            _draw_probes(ax, decisions)
            ax.set_xlim(0, max(end_s, 1e-9))
            ax.set_xlabel(with_unit("training + data wait + probes", "train_s"))
        if (trace["probe_s"] > 0).any():
            footer(figure, "grey: probes")
    return figure


def _draw_groups(ax: Axes, decisions: pd.DataFrame, script: str, end_s: float) -> None:
    seconds, groups = decisions["seconds"].tolist(), decisions["group"].tolist()
    ax.step([*seconds, end_s], [*groups, groups[-1]], where="post", color=INK)
    for second, group in zip(seconds, groups, strict=True):
        look: dict[str, Any] = {"color": color_in_script(group, script), "markeredgecolor": "white"}
        ax.plot(second, group, group_marker(group), clip_on=False, **look)


def _draw_shares(ax: Axes, shares: Mapping[int, float], script: str, end_s: float) -> None:
    for group, share in shares.items():
        color = color_in_script(group, script)
        ax.plot([0, end_s], [group, group], group_marker(group), linestyle="-", color=color, clip_on=False)
        words = f"{share:.0%} of records"
        # Towards the middle: there is no space above the highest group.
        where, aligned = ((0, -5), "top") if group > NUM_GROUPS / 2 else ((0, 5), "bottom")
        note(ax, words, (end_s / 2, group), where, ha="center", va=aligned)


def _label_groups(ax: Axes) -> None:
    ax.set_ylabel("scan group read")
    ax.set_ylim(0.5, NUM_GROUPS + 0.5)
    ax.yaxis.set_major_locator(FixedLocator(range(1, NUM_GROUPS + 1)))


def _draw_probes(ax: Axes, decisions: pd.DataFrame) -> None:
    took_s = decisions["probe_s"].diff().fillna(decisions["probe_s"])
    for end, width in zip(decisions["seconds"], took_s, strict=True):
        if width > 0:
            ax.axvspan(end - width, end, color=MUTED, alpha=0.2, linewidth=0, zorder=0)


def _draw_scores(ax: Axes, scored: pd.DataFrame, script: str, end_s: float) -> None:
    candidates = sorted(int(value) for value in scored["candidate"].unique())
    if len(candidates) > MAX_CURVES:
        candidates = [candidate for candidate in candidates if candidate in DRAWN_CANDIDATES]
    for candidate in candidates:
        rows = scored[scored["candidate"] == candidate]
        color, marker = color_in_script(candidate, script), group_marker(candidate)
        ax.plot(rows["seconds"], rows["score"], color=color, marker=marker, label=f"{candidate}")
    measures = scored["measure"].unique()
    ax.set_ylabel(" / ".join(describe_measure(measure) for measure in measures))
    wanted = scored.drop_duplicates("seconds").dropna(subset=["threshold"])
    if len(wanted):
        name = "taken by training" if _SUPPLY in measures else "threshold"
        seconds, heights = wanted["seconds"].tolist(), wanted["threshold"].tolist()
        look: dict[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": "--", "label": name}
        ax.step([*seconds, end_s], [*heights, heights[-1]], where="post", **look)
    ax.legend(title="scan group", **BELOW, ncols=5)


def write_traces(output: Output) -> None:
    """Draw the decisions of each policy's run as `traces/<policy>_s<seed>.{pdf,png,csv}`.

    If runs of one policy and seed have several settings, their files are named by run id.
    """
    frame = output.frame
    with_policy = frame[[has_policy(config) for config in frame["config"]]]
    names = [f"{run['config']['scan']['name']}_s{run['seed']}" for run in with_policy.to_dict("records")]
    for place, name in enumerate(names):
        run = with_policy.iloc[[place]]
        unique = name if names.count(name) == 1 else str(run["run_id"].iloc[0])
        caption = of_runs(run, "What the policy chose")
        output.figures += draw_trace(run, caption, output.folder / "traces", unique)


def draw_trace(frame: pd.DataFrame, caption: Caption, out: Path, name: str) -> list[Path]:
    """Save the decisions of one run's policy as `<name>.{pdf,png,csv}`; nothing if it made none."""
    (run,) = frame.to_dict("records")
    rows, scan = run["rows"], run["config"]["scan"]
    trace = policy_trace(rows, scan.get("threshold"))
    if trace.empty:
        return []
    draw = partial(
        draw_policy_trace, policy=run["scan"], end_s=seconds_of(rows[-1]), shares=drawn_shares(scan)
    )
    return save_figure(draw, trace, out, name, caption)
