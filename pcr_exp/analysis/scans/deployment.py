"""What a model that learned at a scan group is worth at full fidelity, and at that group itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from pcr_exp.analysis.core.cells import (
    NOTHING,
    Cell,
    Footnotes,
    difference_cell,
    percent,
    section,
    spread_cell,
)
from pcr_exp.analysis.core.headline import as_written, headline_of
from pcr_exp.analysis.core.look import scan_words
from pcr_exp.analysis.core.over_images import predictions_of, with_intervals
from pcr_exp.analysis.core.read_runs import Run, evaluations_at
from pcr_exp.analysis.core.runs_table import GROUP_KEYS, LEVEL, fold_of, per_setting, shared_columns
from pcr_exp.analysis.core.statistics import DIFFERENCE, distinct_seeds, interval_words, spread
from pcr_exp.analysis.core.told_apart import setting_words, titles_apart

TESTED_AT = {"full": "in full", "same": "at the same", "renewed": "in full, BatchNorm renewed"}
"""`training.eval_groups` and their words in tables."""
DEPLOYMENT_COLUMNS = [
    *(*GROUP_KEYS, *LEVEL, "tested_at", "n", "headline"),
    *("score_mean", "score_min", "score_max", *DIFFERENCE),
]


def deployment_table(runs: Sequence[Run]) -> pd.DataFrame:
    """DEPLOYMENT_COLUMNS: one row per setting, scan level and fidelity of the test (`training.eval_groups`).

    `score_*` is of the finished model, over `n` seeds or folds; `difference_*` less the baseline's of the
    same seed at full fidelity, with an interval over images as well where all runs kept predictions. Runs
    that were not evaluated at their own group are left out.
    """
    found = pd.DataFrame([row for run in runs for row in _rows(run)])
    if found.empty:
        return pd.DataFrame(columns=DEPLOYMENT_COLUMNS)
    predictions = predictions_of(runs)
    rows = []
    for group, of_group in found.groupby(GROUP_KEYS, sort=True):
        reference = of_group[(of_group["encoding"] == "baseline") & (of_group["tested_at"] == "full")]
        differences = {
            str(tested_at): with_intervals(alike, reference, "score", predictions, str(tested_at))
            for tested_at, alike in of_group.groupby("tested_at")
        }
        for (scan, tested_at), seeds in of_group.groupby(["scan", "tested_at"], sort=True):
            first = seeds.iloc[0]
            rows.append(
                {
                    **dict(zip(GROUP_KEYS, group, strict=True)),
                    **{key: first[key] for key in (*LEVEL, "headline")},
                    "tested_at": tested_at,
                    "n": len(distinct_seeds(seeds)),
                    **spread(distinct_seeds(seeds), ["score"]),
                    **differences[str(tested_at)][scan],
                }
            )
    table = pd.DataFrame(rows)
    table["_place"] = table["group"].where(table["encoding"] != "baseline", 0)
    order = [*GROUP_KEYS, "_place", "scan", "tested_at"]
    return table.sort_values(order, ignore_index=True)[DEPLOYMENT_COLUMNS]


def write_deployment(runs: Sequence[Run], out: Path) -> tuple[list[Path], list[Path]]:
    """Write deployment.csv and deployment.md if runs were evaluated at their own group; (tables, figures)."""
    table = deployment_table(runs)
    if table.empty:
        return [], []
    files = [out / "deployment.csv", out / "deployment.md"]
    as_written(table).to_csv(files[0], index=False)
    files[1].write_text(deployment_to_markdown(table, setting_words(runs)))
    return files, []


def deployment_to_markdown(table: pd.DataFrame, words: Mapping[str, str] | None = None) -> str:
    """A table per setting: scan levels in rows, both ways of testing in columns.

    `words` as `told_apart.setting_words` has them: they name settings in titles that would be alike.
    """
    parts = []
    found = list(per_setting(table, GROUP_KEYS))
    titles = titles_apart([(title, group) for title, group, _ in found], words)
    for title, (_, group, rows) in zip(titles, found, strict=True):
        facts = (
            f"Final validation {headline_of(rows).words}, mean over n seeds (smallest to largest): images in "
            "full, or read as in training. Differences, in points, are to the baseline in full, by seed, "
            f"± half their 95 % interval ({interval_words(rows)}); setting {group['setting']}."
        )
        notes = Footnotes()
        cells = _columns(rows, notes)
        parts.append(section(title, facts, rows.drop_duplicates("scan"), cells, notes))
    return "\n".join(parts)


def _columns(rows: pd.DataFrame, notes: Footnotes) -> dict[str, Cell]:
    cells: dict[str, Cell] = {
        "trained at": lambda row: scan_words(row["scan"]),
        "n": lambda row: notes.count(row["n"]),
    }
    for tested_at in [tested_at for tested_at in TESTED_AT if tested_at in set(rows["tested_at"])]:
        words = TESTED_AT[tested_at]
        cells |= _cells_of(rows[rows["tested_at"] == tested_at], words, notes)
    return cells


def _cells_of(rows: pd.DataFrame, words: str, notes: Footnotes) -> dict[str, Cell]:
    by_scan = {row["scan"]: row for row in rows.to_dict("records")}

    def difference(level: object) -> str:
        row = by_scan[level]
        same = row["encoding"] == "baseline" and row["tested_at"] == "full"
        return NOTHING if same else difference_cell(row, notes)

    return {
        f"tested {words}": lambda row: spread_cell(by_scan[row["scan"]], "score", percent),
        f"difference {words}": lambda row: difference(row["scan"]),
    }


def _rows(run: Run) -> list[dict[str, object]]:
    if not evaluations_at("same", run.rows):
        return []
    shared = shared_columns(run)
    kept = {key: shared[key] for key in ("run_id", *GROUP_KEYS, *LEVEL, "seed", "headline")}
    kept["fold"] = fold_of(run)
    return [
        {**kept, "tested_at": tested_at, "score": evaluated[-1]["val_score"]}
        for tested_at in TESTED_AT
        if (evaluated := evaluations_at(tested_at, run.rows))
    ]
