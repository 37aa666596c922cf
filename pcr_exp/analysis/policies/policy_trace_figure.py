"""A scan policy at work: which group it chose when, and what it saw of each candidate."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import INK, panel_title, scan_color, scan_marker, style
from pcr_exp.config.records import NUM_GROUPS

SCORE_LABELS = {
    "ms_ssim": "mean MS-SSIM to all groups",
    "cosine": "gradient cosine to all groups",
    "train_loss": "training loss of the trial",
    "tune_loss": "loss on tune images after the trial",
    "val_loss": "validation loss after the trial",
    "images_per_s": "supply (images/s)",
}


def draw_policy_trace(trace: pd.DataFrame, title: str, policy: str, end_s: float) -> Figure:
    """The chosen group (left) and each candidate's score (right, if any were compared) against seconds.

    Args:
        trace: As `pcr_exp.analysis.policies.policy_trace.policy_trace` makes it, of one run.
        title: Which run.
        policy: The policy's name.
        end_s: The run's train_s + wait_s + probe_s: how far the last choice reaches.
    """
    with style():
        scored = trace.dropna(subset=["candidate"])
        figure, axes = panels(2 if len(scored) else 1)
        decisions = trace.drop_duplicates(["step", "group", "measure"])
        _draw_groups(axes[0], decisions, end_s)
        share = decisions["run_saved_share"].iloc[-1]
        saved = "bytes saved: not known" if share != share else f"{share:.0%} of all bytes saved, probes paid"
        panel_title(axes[0], title, f"n = 1 run, {len(decisions)} decisions; whole run: {saved}\n{policy}")
        if len(scored):
            _draw_scores(axes[1], scored)
            probes = decisions.iloc[-1]
            cost = f"probes: {probes['probe_s']:.3g} s, {probes['probe_bytes'] / 2**20:.3g} MiB"
            panel_title(axes[1], " ", f"n = {scored['step'].nunique()} comparisons; {cost}")
        for ax in axes:
            ax.set_xlim(0, max(end_s, 1e-9))
            ax.set_xlabel("training + data wait + probes (s)")
    return figure


def _draw_groups(ax: Axes, decisions: pd.DataFrame, end_s: float) -> None:
    seconds, groups = decisions["seconds"].tolist(), decisions["group"].tolist()
    ax.step([*seconds, end_s], [*groups, groups[-1]], where="post", color=INK)
    for second, group in zip(seconds, groups, strict=True):
        name = f"group_{group}"
        ax.plot(second, group, scan_marker(name), color=scan_color(name), markeredgecolor="white")
    ax.set_ylabel("scan group read")
    ax.set_ylim(0.5, NUM_GROUPS + 0.5)
    ax.yaxis.set_major_locator(FixedLocator(range(1, NUM_GROUPS + 1)))


def _draw_scores(ax: Axes, scored: pd.DataFrame) -> None:
    for candidate in sorted(int(value) for value in scored["candidate"].unique()):
        rows, name = scored[scored["candidate"] == candidate], f"group_{candidate}"
        color, marker = scan_color(name), scan_marker(name)
        ax.plot(rows["seconds"], rows["score"], color=color, marker=marker, label=f"{candidate}")
    measures = scored["measure"].unique()
    ax.set_ylabel(" / ".join(SCORE_LABELS[measure] for measure in measures))
    ax.legend(title="scan group", loc="best", title_fontsize=8.5, ncols=2)
