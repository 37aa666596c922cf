"""Runs of several processes over time: accuracy by the clock, and bits per value by the update."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from pcr_exp.analysis.core.permitted import may_say_seconds
from pcr_exp.analysis.core.read_runs import Run
from pcr_exp.analysis.core.time_to_target import seconds_of
from pcr_exp.analysis.gradients.table import PANEL_KEYS, SERIES_KEYS, coded_bits, gradient_frame, team_runs

_KEYS = [*PANEL_KEYS, *SERIES_KEYS]
DIRECTIONS = {"push": "pushed", "pull": "pulled"}


def accuracy_curves(runs: Sequence[Run]) -> pd.DataFrame:
    """Means over seeds per epoch: the keys of `gradient_table`, `n`, target_top1, epoch, seconds, val_top1.

    `seconds` are of training and waiting; evaluation is off the clock. Series with one evaluation are no
    curves, and left out, as are runs whose seconds may not be said.
    """
    runs = [run for run in runs if not may_say_seconds(run)]
    evaluations = [
        {
            "run_id": run.manifest.run_id,
            "epoch": row["epoch"],
            "seconds": seconds_of(row),
            "val_top1": row["val_top1"],
        }
        for run in runs
        for row in run.eval_rows
    ]
    if not evaluations or not team_runs(runs):
        return pd.DataFrame(columns=[*_KEYS, "n", "epoch", "seconds", "val_top1"])
    curves = _over_seeds(runs, evaluations, "epoch", ["seconds", "val_top1"])
    lengths = curves.groupby(_KEYS)["epoch"].transform("size")
    return curves[lengths > 1].reset_index(drop=True)


def bits_curves(runs: Sequence[Run]) -> pd.DataFrame:
    """Means over seeds per train row: the keys, `n`, `zero_run`, step, direction (push, pull), coded_bits.

    Bits per value that went through the codec since the train row before. Of 3LC's runs with zero runs
    shortened, and for each s and mode of those with the most updates, at one bandwidth: links change no bits.
    """
    intervals = []
    for run in team_runs(runs):
        rows = [row for row in run.rows if row["kind"] == "train"]
        for before, row in zip([None, *rows[:-1]], rows, strict=True):
            for direction, column in DIRECTIONS.items():
                bits = {"direction": direction, "coded_bits": coded_bits(row, before, [column])}
                intervals.append({"run_id": run.manifest.run_id, "step": row["step"], **bits})
    curves = _over_seeds(runs, intervals, ["step", "direction"], ["coded_bits"])
    curves = curves[curves["zero_run"] & curves["coded_bits"].notna()]
    for longest in ("epochs", "bandwidth_mbit_per_s"):
        most = curves.groupby([*PANEL_KEYS, "mode", "codec"])[longest].transform("max")
        curves = curves[curves[longest] == most]
    return curves.reset_index(drop=True)


def _over_seeds(
    runs: Sequence[Run], rows: list[dict], by: str | list[str], measures: list[str]
) -> pd.DataFrame:
    frame = gradient_frame(runs)
    frame["n"] = frame.groupby(_KEYS)["seed"].transform("nunique")
    facts = [*_KEYS, "zero_run", "n", "target_top1", "majority_share", "num_classes"]
    places = [by] if isinstance(by, str) else by
    joined = frame[["run_id", *facts]].merge(pd.DataFrame(rows), on="run_id")
    means = joined.groupby([*facts, *places], sort=True, dropna=False)[measures].mean()
    return means.reset_index()
