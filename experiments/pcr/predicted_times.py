"""Time to accuracy as the throughput model predicts it, beside what runs took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from pcr_exp.analysis.frame import GROUP_KEYS, LEVEL, RUN_IDENTITY, runs_frame
from pcr_exp.analysis.plan import bandwidth_images_per_s, fill_s, images_per_s, time_to_accuracy_s
from pcr_exp.analysis.reporting_rules import may_say_seconds
from pcr_exp.analysis.runs import Run
from pcr_exp.system import MIB

REFERENCE_GROUP = 1
"""The scan level whose runs tell what compute and decoding allow: storage limits it least."""

TOLERANCE = 0.10
"""The share by which a prediction may miss the measured time: declared beforehand."""

TIME_COLUMNS = [
    *("run_id", *GROUP_KEYS, *LEVEL, "seed", "target_score", "headline", "mean_image_bytes"),
    *("epochs_to_accuracy", "num_train", "compute_images_per_s", "bandwidth_images_per_s"),
    *("predicted_images_per_s", "bound", "images_per_s", "start_s", "predicted_s", "measured_s", "error"),
]


def predict_times(runs: Sequence[Run]) -> pd.DataFrame:
    """One row of TIME_COLUMNS per run that reached its target: predicted and measured train_s + wait_s.

    `epochs_to_accuracy` are the run's own. The rest of the prediction is its bytes, its storage's bandwidth
    and seeks, its shuffle window, and compute: images/s after the first train row of the REFERENCE_GROUP runs
    of the same setting, the mean over their seeds. `error` is predicted / measured - 1. Runs of
    REFERENCE_GROUP itself, settings without any or without a bandwidth, and runs whose seconds may not be
    said, are left out.
    """
    runs = [run for run in runs if not may_say_seconds(run)]
    frame = runs_frame(runs)
    rows = []
    for _, setting in frame.groupby([*GROUP_KEYS, "timing"], sort=True):
        is_reference = (setting["encoding"] != "baseline") & (setting["group"] == REFERENCE_GROUP)
        references = [runs[i] for i in setting.index[is_reference]]
        limited = setting["bandwidth_mib_per_s"].notna() & ~is_reference
        reached = setting[limited & setting["time_to_target_s"].notna()]
        if references:
            compute = _mean(steady_images_per_s(run.rows) for run in references)
            rows += [_predict(runs[i], frame.loc[i], compute) for i in reached.index]
    return pd.DataFrame(rows, columns=TIME_COLUMNS)


def steady_images_per_s(rows: Sequence[Mapping[str, Any]]) -> float:
    """Images/s of training and waiting for data, from the first train row to the last row."""
    first, last = _first_train_row(rows), rows[-1]
    busy_s = sum(last[key] - first[key] for key in ("train_s", "wait_s"))
    return (last["samples_seen"] - first["samples_seen"]) / busy_s


def _predict(run: Run, row: pd.Series, compute: float) -> dict[str, Any]:
    reached = next(found for found in run.eval_rows if found["val_score"] >= row["target_score"])
    num_train = reached["samples_seen"] / reached["epoch"]
    images_per_record = run.config["dataset"]["images_per_record"]
    limits = {
        "compute": compute,
        "bandwidth": bandwidth_images_per_s(
            row["bandwidth_mib_per_s"] * MIB,
            row["mean_image_bytes"],
            seek_s_per_image=run.config["storage"]["seek_ms"] / 1e3 / images_per_record,
        ),
    }
    rate, bound = images_per_s(limits)
    loader = run.config["loader"]
    # The first batch has samples of all that is read side by side. These runs had one lane, and no such key.
    at_first = loader.get("lanes", 1) * loader["shuffle_records"] * images_per_record
    start_s = fill_s(min(at_first, num_train), limits)
    predicted_s = time_to_accuracy_s(reached["epoch"], num_train, rate, start_s=start_s)
    return {
        **{key: row[key] for key in RUN_IDENTITY if key in TIME_COLUMNS},
        "epochs_to_accuracy": reached["epoch"],
        "num_train": num_train,
        **{f"{limit}_images_per_s": value for limit, value in limits.items()},
        "predicted_images_per_s": rate,
        "bound": bound,
        "images_per_s": steady_images_per_s(run.rows),
        "start_s": start_s,
        "predicted_s": predicted_s,
        "measured_s": row["time_to_target_s"],
        "error": predicted_s / row["time_to_target_s"] - 1,
    }


def _first_train_row(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next(row for row in rows if row["kind"] == "train")


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
