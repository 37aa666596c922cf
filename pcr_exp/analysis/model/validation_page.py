"""Tables and figures of the throughput model held against measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.caption import Caption, hardware_words, of_runs
from pcr_exp.analysis.core.cells import markdown_table, span, three_figures
from pcr_exp.analysis.core.figure import save_figure
from pcr_exp.analysis.core.look import scan_words
from pcr_exp.analysis.core.read_runs import read_runs
from pcr_exp.analysis.model.figures import draw_predicted_rates, draw_predicted_times
from pcr_exp.analysis.model.measured_roofline import draw_measured_roofline, roofline_points
from pcr_exp.analysis.model.predicted_times import TOLERANCE as TIME_TOLERANCE
from pcr_exp.analysis.model.predicted_times import predict_times
from pcr_exp.analysis.model.validation import TOLERANCE as RATE_TOLERANCE
from pcr_exp.analysis.model.validation import Validation, compare, load_validation
from pcr_exp.system.provenance import code_in_words

TABLE_FILE = "validation.md"


def report_validation(folder: str | Path, runs_roots: Sequence[str]) -> list[Path]:
    """Write validation.md and the figures of what `folder` holds; returns all files.

    With `runs_roots`: also predicted times to accuracy of the finished runs there.

    Raises:
        RunError: as `load_validation`, `compare` and `read_runs`.
    """
    folder = Path(folder)
    measured = load_validation(folder)
    cells = compare(measured.rows, measured.meta["num_cores"])
    text = rates_to_markdown(measured, cells)
    figures = save_figure(
        draw_predicted_rates(cells, RATE_TOLERANCE),
        cells,
        *(
            folder,
            "predicted_vs_measured_rates",
            _caption(measured, "Images/s, predicted and measured", cells),
        ),
    )
    roof = roofline_points(cells)
    if len(roof):
        caption = _caption(measured, "Measured roofline", roof)
        figures += save_figure(draw_measured_roofline(roof), roof, folder, "measured_roofline", caption)
    if runs_roots:
        runs = [run for root in runs_roots for run in read_runs(root)]
        times = predict_times(runs)
        text += "\n" + times_to_markdown(times)
        figures += save_figure(
            draw_predicted_times(times, TIME_TOLERANCE),
            times,
            *(folder, "predicted_vs_measured_times"),
            of_runs(runs, "Time to accuracy, predicted and measured", times),
        )
    table = folder / TABLE_FILE
    table.write_text(text)
    return [table, *figures]


def _caption(measured: Validation, shows: str, cells: pd.DataFrame) -> Caption:
    settings = measured.meta["settings"]
    storages = " / ".join(str(storage) for storage in dict.fromkeys(cells["storage"]))
    return Caption(
        shows=shows,
        of=(f"{settings['dataset']} · a pretended model · crops of {settings['image_size']} px",),
        n=f"n = {span(cells['n'])} repeats",
        hardware=hardware_words(measured.meta),
        storage=f"storage: {storages.replace('unlimited', 'no limit in MiB/s')}",
    )


def rates_to_markdown(measured: Validation, cells: pd.DataFrame) -> str:
    """How many cells each limit predicts well, then every cell."""
    meta, settings = measured.meta, measured.meta["settings"]
    commits = [found["git_sha"] and found["git_sha"][:8] for found in meta["measurements"]]
    dirty = any(found["git_dirty"] for found in meta["measurements"])
    code = code_in_words(commits, dirty, meta["packages"])
    facts = (
        f"{settings['dataset']}, {settings['num_images']} images in records of "
        f"{settings['images_per_record']}; crops of {settings['image_size']} px, batches of "
        f"{settings['batch_size']}, {settings['num_workers']} decoding worker per process; "
        f"{settings['measure_s']:g} s each after settling; {meta['cpu']}, {meta['num_cores']} cores; "
        f"n = {_range(cells['n'])} repeats, median (smallest to largest); {code}."
    )
    tested = cells[~cells["is_calibration"]]
    return (
        "\n\n".join(
            [
                "### Predicted and measured images/s",
                facts,
                markdown_table(summarise(tested, ["bound", "num_processes"], RATE_TOLERANCE), _SUMMARY),
                markdown_table(tested, _CELLS),
            ]
        )
        + "\n"
    )


def times_to_markdown(times: pd.DataFrame) -> str:
    """How many runs are predicted well, then every run."""
    columns = _SUMMARY | {"processes": lambda _: "1"}
    return (
        "\n\n".join(
            [
                "### Predicted and measured time to accuracy",
                "Of finished runs that reached their target. Compute is what the group 1 runs of the same "
                "setting did (mean over seeds, training and waiting, after the first train row). Runs whose "
                "seconds may not be said are left out; every row of the second table is one run (n = 1).",
                markdown_table(
                    summarise(times.assign(num_processes=1), ["bound", "num_processes"], TIME_TOLERANCE),
                    columns,
                ),
                markdown_table(times, _TIMES),
            ]
        )
        + "\n"
    )


def summarise(rows: pd.DataFrame, by: list[str], tolerance: float) -> pd.DataFrame:
    """Per `by`: n, how many errors are within tolerance, median absolute error, and the largest."""
    summary = []
    for key, part in [*rows.groupby(by, sort=True), (("all",) * len(by), rows)]:
        size = part["error"].abs()
        summary.append(
            {
                **dict(zip(by, key, strict=True)),
                "n": len(part),
                "num_within": int((size <= tolerance).sum()),
                "tolerance": tolerance,
                "median": size.median(),
                "largest": size.max(),
            }
        )
    return pd.DataFrame(summary)


def _range(counts: pd.Series) -> str:
    low, high = counts.min(), counts.max()
    return str(low) if low == high else f"{low} to {high}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _signed(row: Mapping[Any, Any]) -> str:
    return f"{100 * row['error']:+.1f} %"


def _measured(row: Mapping[Any, Any]) -> str:
    median, low, high = (
        three_figures(row[f"images_per_s_{statistic}"]) for statistic in ("median", "min", "max")
    )
    return f"{median} ({low} to {high})" if row["n"] > 1 else median


def _model(row: Mapping[Any, Any]) -> str:
    rate = row["model_images_per_s"]
    return "none" if math.isnan(rate) else three_figures(rate)


_SUMMARY = {
    "limit": lambda row: row["bound"].replace("_", " "),
    "processes": lambda row: str(row["num_processes"]),
    "n": lambda row: str(row["n"]),
    "within": lambda row: f"{row['num_within']} within {100 * row['tolerance']:g} %",
    "median error": lambda row: _percent(row["median"]),
    "largest": lambda row: _percent(row["largest"]),
}

_CELLS = {
    "storage": lambda row: row["storage"],
    "processes": lambda row: str(row["num_processes"]),
    "model, images/s each": _model,
    "scan": lambda row: scan_words(row["scan"]),
    "limit": lambda row: row["bound"].replace("_", " "),
    "predicted images/s": lambda row: three_figures(row["predicted_images_per_s"]),
    "measured images/s": _measured,
    "error": _signed,
}

_TIMES = {
    "task": lambda row: f"{row['dataset']} · {row['label']}",
    "scan": lambda row: scan_words(row["scan"]),
    "seed": lambda row: str(row["seed"]),
    "epochs": lambda row: f"{row['epochs_to_accuracy']:g}",
    "limit": lambda row: row["bound"],
    "predicted images/s": lambda row: three_figures(row["predicted_images_per_s"]),
    "measured images/s": lambda row: three_figures(row["images_per_s"]),
    "predicted s": lambda row: three_figures(row["predicted_s"]),
    "measured s": lambda row: three_figures(row["measured_s"]),
    "error": _signed,
}
