"""Compare decode modes by task, with the same images, folds and classifier for each mode.

`python -m experiments.pcr.tolerance_modes FOLDER... --out results/decode_modes/frozen` reads folders of
`experiments.tolerance` that differ only in `decode`, and writes modes.csv and modes.md.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.results.study import Study
from pcr_exp.analysis.tables import Cell, interval_cell, markdown_table, percent
from pcr_exp.analysis.tolerance import Facts, Measured
from pcr_exp.analysis.tolerance_page import load_tolerance
from pcr_exp.config.measuring import DEPLOYMENTS
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.tolerance.answer import image_weights, interval, score
from pcr_exp.system.atomic import make_folder, write_atomic

REFERENCE = "libjpeg"
"""The decoder's own output, which the papers trained on."""


def weights_of(measured: Measured) -> NDArray[np.float64]:
    """Return weights of all images, then of their resamples, [1 + resamples, N], for every group."""
    return image_weights(measured.clusters, measured.facts.num_resamples, measured.facts.seed)


def scores_of(
    measured: Measured, group: int, deployment: str, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the primary metric of a classifier trained at a group and deployed so, per row of weights."""
    facts, predictions = measured.facts, measured.predictions
    train = list(facts.groups).index(group)
    test = train if deployment == "same" else len(facts.groups) - 1
    classes, outputs = predictions.classes[train, test], predictions.outputs[train, test]
    return score(facts.headline, classes, outputs, measured.labels, weights)


def mode_table(measured: Sequence[Measured]) -> pd.DataFrame:
    """Return a row per task, group, deployment and mode, with its difference to libjpeg's own output.

    Columns: `dataset`, `label`, `headline`, `n`, `group`, `deployment` (`full`: trained at the group, used at
    all scans; `same`: used at the group), `decode`, `score`, `difference`, `difference_low` and
    `difference_high` (shares; paired by image, and bootstrapped over clusters of images as in `loss_matrix`).

    Raises:
        ConfigError: a task lacks libjpeg's mode, or its modes differ in images or other settings.
    """
    rows = []
    for _, same_task in groupby(sorted(measured, key=_task), key=_task):
        by_mode = {found.facts.decode: found for found in same_task}
        if REFERENCE not in by_mode:
            facts = next(iter(by_mode.values())).facts
            raise ConfigError(
                f"{facts.label} of {facts.dataset} was measured with decode={', '.join(sorted(by_mode))} "
                f"only; wanted decode={REFERENCE} beside it, which the others are compared with."
            )
        rows += _differences(by_mode)
    return pd.DataFrame(rows)


def _task(measured: Measured) -> tuple[str, str]:
    return measured.facts.dataset, measured.facts.label


def _differences(by_mode: dict[str, Measured]) -> list[dict[str, Any]]:
    reference = by_mode[REFERENCE]
    facts, weights = reference.facts, weights_of(reference)
    rows = []
    for group in facts.groups[:-1]:
        for deployment in DEPLOYMENTS:
            plain = scores_of(reference, group, deployment, weights)
            for decode, found in by_mode.items():
                _check_alike(found.facts, facts, np.array_equal(found.labels, reference.labels))
                scores = scores_of(found, group, deployment, weights)
                low, high = interval(scores[1:] - plain[1:])
                rows.append(
                    {
                        "dataset": facts.dataset,
                        "label": facts.label,
                        "headline": facts.headline,
                        "n": facts.num_images,
                        "group": group,
                        "deployment": deployment,
                        "decode": decode,
                        "score": float(scores[0]),
                        "difference": float(scores[0] - plain[0]),
                        "difference_low": low,
                        "difference_high": high,
                    }
                )
    return rows


def _check_alike(facts: Facts, reference: Facts, same_labels: bool) -> None:
    ours, theirs = ({**asdict(each), "decode": None, "storage": None} for each in (facts, reference))
    others = [key for key, value in ours.items() if value != theirs[key]]
    if others or not same_labels:
        raise ConfigError(
            f"{facts.label} of {facts.dataset}: decode={facts.decode} and decode={reference.decode} differ "
            f"in {', '.join(others) or 'the images'} too; measure them with the same settings."
        )


def mode_page(table: pd.DataFrame) -> str:
    """Return the table in Markdown, in percent and points."""
    points = interval_cell("difference", lambda share: f"{100 * share:+.1f}")
    columns: dict[str, Cell] = {
        "task": lambda row: f"{row['dataset']} {row['label']}",
        "images": lambda row: f"{row['n']:,}",
        "group": lambda row: str(row["group"]),
        "used at": lambda row: "all scans" if row["deployment"] == "full" else "the same",
        "decode": lambda row: row["decode"],
        "score": lambda row: percent(row["score"]),
        f"difference to {REFERENCE}, points": lambda row: "-" if row["decode"] == REFERENCE else points(row),
    }
    return markdown_table(table, columns) + "\n"


def write(given: Namespace) -> None:
    """Write both files and print the page."""
    table = mode_table([load_tolerance(folder) for folder in given.folders])
    make_folder(given.out)
    write_atomic(given.out / "modes.csv", [table.to_csv(index=False).encode()])
    write_atomic(given.out / "modes.md", [mode_page(table).encode()])
    print(mode_page(table))


main = Study(__doc__, "outputs/decode_modes/frozen", write, repeats=None, images=False)
main.add("folders", nargs="+", type=Path, help="of experiments.tolerance")

if __name__ == "__main__":
    main()
