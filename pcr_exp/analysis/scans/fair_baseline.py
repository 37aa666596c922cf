"""The search for a baseline's learning rate and crop scale, what it chose, and the target that follows.

Only runs of `scan=baseline` that were evaluated on the `tune` split count: what is chosen by is never what is
reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.cells import markdown_table, percent
from pcr_exp.analysis.core.headline import as_written
from pcr_exp.analysis.core.read_runs import Run

MARGIN = 0.02
"""A target is the chosen baseline's score less this share."""
GROUP_COLUMNS = ["dataset", "label", "model", "image_size_px"]
TUNED_COLUMNS = ["learning_rate", "crop_scale_min"]
FAIR_COLUMNS = [
    *(*GROUP_COLUMNS, *TUNED_COLUMNS, "n", "num_tune", "epochs", "final_score", "final_loss", "train_loss"),
    *("chosen", "target_score", "headline", "git_sha"),
]


def fair_baseline_table(runs: Sequence[Run]) -> pd.DataFrame:
    """FAIR_COLUMNS: one row per dataset, label, model, input size, learning rate and crop scale.

    Scores and losses are of the finished model on the `tune` split, means over `n` seeds. `chosen` is the
    setting with the highest score, of equal ones the one with the lower loss; `target_score`, its score less
    MARGIN, is the target of the (dataset, label, model, input size) whatever else is compared.
    """
    found = [_row(run) for run in runs if _is_search(run)]
    if not found:
        return pd.DataFrame(columns=FAIR_COLUMNS)
    by_setting = pd.DataFrame(found).groupby([*GROUP_COLUMNS, *TUNED_COLUMNS], sort=True)
    same = dict.fromkeys(("num_tune", "epochs", "headline", "git_sha"), "first")
    means = dict.fromkeys(("final_score", "final_loss", "train_loss"), "mean")
    table = by_setting.agg({"seed": "nunique", **same, **means}).reset_index().rename(columns={"seed": "n"})
    best_first = table.sort_values(["final_score", "final_loss"], ascending=[False, True])
    best = best_first.groupby(GROUP_COLUMNS).head(1).index
    table["chosen"] = table.index.isin(best)
    target = table.groupby(GROUP_COLUMNS)["final_score"].transform("max") - MARGIN
    return table.assign(target_score=target.round(4))[FAIR_COLUMNS]


def write_fair_baseline(runs: Sequence[Run], out: Path) -> tuple[list[Path], list[Path]]:
    """Write fair_baseline.csv and fair_baseline.md if there is a search among the runs; (tables, figures)."""
    table = fair_baseline_table(runs)
    if table.empty:
        return [], []
    files = [out / "fair_baseline.csv", out / "fair_baseline.md"]
    as_written(table).to_csv(files[0], index=False)
    files[1].write_text(fair_baseline_to_markdown(table))
    return files, []


def fair_baseline_to_markdown(table: pd.DataFrame) -> str:
    """A table per dataset, label, model and input size; the chosen setting is bold."""
    parts = []
    for keys, rows in table.groupby(GROUP_COLUMNS, sort=True):
        dataset, label, model, size_px = keys
        first = rows.iloc[0]
        columns = {
            "learning rate": lambda row: _bold(f"{row['learning_rate']:g}", row),
            "crop scale from": lambda row: _bold(f"{row['crop_scale_min']:g}", row),
            "seeds": lambda row: str(row["n"]),
            f"{first['headline']} on tune": lambda row: _bold(percent(row["final_score"]), row),
            "loss on tune": lambda row: f"{row['final_loss']:.3f}",
            "train loss": lambda row: f"{row['train_loss']:.3f}",
        }
        parts.append(
            f"### {dataset}, {label}, {model}, {size_px} px\n\n{markdown_table(rows, columns)}\n\n"
            f"{first['num_tune']} images to tune by, {first['epochs']} epochs; target: "
            f"{percent(first['target_score'])}, the chosen baseline less {100 * MARGIN:g} points.\n"
        )
    return "\n".join(parts)


def _bold(words: str, row: Any) -> str:
    return f"**{words}**" if row["chosen"] else words


def _is_search(run: Run) -> bool:
    split = run.config["training"].get("eval_split", "val")  # came later
    return bool(split == "tune" and run.manifest.encoding == "baseline")


def _row(run: Run) -> dict[str, Any]:
    manifest, training, last = run.manifest, run.config["training"], run.eval_rows[-1]
    return {
        "dataset": run.dataset,
        "label": manifest.label,
        "model": manifest.model,
        "image_size_px": training["image_size"],
        "learning_rate": training["learning_rate"],
        "crop_scale_min": run.config["dataset"]["augment"]["crop_scale"][0],
        "seed": manifest.seed,
        "num_tune": last["num_val"],
        "epochs": last["epoch"],
        "final_score": last["val_score"],
        "final_loss": last["val_loss"],
        "train_loss": last["train_loss"],
        "headline": manifest.headline,
        "git_sha": manifest.git_sha,
    }
