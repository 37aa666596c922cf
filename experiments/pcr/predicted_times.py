"""Time to accuracy as the throughput model predicts it, beside what runs took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import pandas as pd

from pcr_exp.analysis.frame import GROUP_KEYS, LEVEL, RUN_IDENTITY, first_reached
from pcr_exp.analysis.plan import bandwidth_images_per_s, fill_s, images_per_s, time_to_accuracy_s
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


def predict_times(runs: pd.DataFrame) -> pd.DataFrame:
    """TIME_COLUMNS of `run_frame`, a row per run that reached its target: predicted and measured seconds.

    Seconds are train_s + wait_s. `epochs_to_accuracy` are the run's own. The rest of the prediction is its
    bytes, its storage's bandwidth
    and seeks, its shuffle window, and compute: images/s after the first train row of the REFERENCE_GROUP runs
    of the same setting, the mean over their seeds. `error` is predicted / measured - 1. Runs of
    REFERENCE_GROUP itself, settings without any or without a bandwidth, and runs whose seconds may not be
    said, are left out.
    """
    rows = []
    for _, setting in runs[runs["timing_excluded_because"] == ""].groupby([*GROUP_KEYS, "timing"], sort=True):
        is_reference = (setting["encoding"] != "baseline") & (setting["group"] == REFERENCE_GROUP)
        limited = setting["bandwidth_mib_per_s"].notna() & ~is_reference
        reached = setting[limited & setting["time_to_target_s"].notna()]
        if is_reference.any():
            compute = fmean(map(steady_images_per_s, setting.loc[is_reference, "rows"]))
            rows += [_predict(run, compute) for run in reached.to_dict("records")]
    return pd.DataFrame(rows, columns=TIME_COLUMNS)


def steady_images_per_s(rows: Sequence[Mapping[str, Any]]) -> float:
    """Images/s of training and waiting for data, from the first train row to the last row."""
    first, last = next(row for row in rows if row["kind"] == "train"), rows[-1]
    busy_s = sum(last[key] - first[key] for key in ("train_s", "wait_s"))
    return (last["samples_seen"] - first["samples_seen"]) / busy_s


def _predict(run: Mapping[Any, Any], compute: float) -> dict[str, Any]:
    reached, config = first_reached(run["rows"], run["target_score"]), run["config"]
    assert reached is not None  # it has a time to the target
    num_train = reached["samples_seen"] / reached["epoch"]
    images_per_record = config["dataset"]["images_per_record"]
    limits = {
        "compute": compute,
        "bandwidth": bandwidth_images_per_s(
            run["bandwidth_mib_per_s"] * MIB,
            run["mean_image_bytes"],
            seek_s_per_image=run["seek_ms"] / 1e3 / images_per_record,
        ),
    }
    rate, bound = images_per_s(limits)
    loader = config["loader"]
    # The first batch has samples of all that is read side by side. These runs had one lane, and no such key.
    at_first = loader.get("lanes", 1) * loader["shuffle_records"] * images_per_record
    start_s = fill_s(min(at_first, num_train), limits)
    predicted_s = time_to_accuracy_s(reached["epoch"], num_train, rate, start_s=start_s)
    return {
        **{key: run[key] for key in RUN_IDENTITY if key in TIME_COLUMNS},
        "epochs_to_accuracy": reached["epoch"],
        "num_train": num_train,
        **{f"{limit}_images_per_s": value for limit, value in limits.items()},
        "predicted_images_per_s": rate,
        "bound": bound,
        "images_per_s": steady_images_per_s(run["rows"]),
        "start_s": start_s,
        "predicted_s": predicted_s,
        "measured_s": run["time_to_target_s"],
        "error": predicted_s / run["time_to_target_s"] - 1,
    }
