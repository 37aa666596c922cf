"""Measures for the claims of Progressive Compressed Records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pandas as pd

from experiments.claims.committed import (
    BOOTSTRAP,
    NONE,
    OVER_REPEATS,
    Committed,
    Measured,
    all_of,
    difference_points,
    exactly,
    mean_of,
    mean_ratio,
)
from pcr_exp.system import MIB

_REDUCED = {
    "cars": ("cars_model", "finetuning/cars/summary.csv"),
    "celebahq": ("celebahq_smiling", "finetuning/celebahq/summary.csv"),
    "ham10000": ("ham10000_dx", "finetuning/ham10000_folds/deployment_top1.csv"),
    "imagenet": ("imagenet_wnid", "from_scratch/imagenet_13394/summary.csv"),
}
"""Datasets smaller than the published ones: their tolerance task, and the file with losses of trained levels.
Lesions are judged by top-1, as in the paper; our own pages also have balanced accuracy and AUC."""
_OVERVIEW = "quality/overview.csv"


def share_of_bytes(committed: Committed, file: str, *, group: int) -> list[Measured]:
    """Return bytes up to a scan group in % of the originals: native ImageNet, and the reduced datasets."""
    size = committed.rows(file, "decode == 'libjpeg, filtered'").set_index("loader")["epoch_bytes"]
    of_native = exactly("native ImageNet", 100 * size[f"group_{group}"] / size["baseline"])
    return [of_native, *_shares_of_reduced(committed, group)]


def _shares_of_reduced(committed: Committed, group: int) -> list[Measured]:
    return [
        exactly(dataset, 100 * committed.row(f"tolerance/{task}/bytes.csv", f"group == '{group}'")["share"])
        for dataset, (task, _) in _REDUCED.items()
    ]


def mean_image_kb(committed: Committed, file: str) -> list[Measured]:
    """Return the mean size, in kB, of the native ImageNet files that loaders are measured on."""
    files = committed.row(file, "format == 'files'")
    return [exactly("", files["num_bytes"] / files["num_images"] / 1000, int(files["num_images"]))]


def _speedup(committed: Committed, file: str, loader: str, bandwidth: float) -> pd.Series:
    """Return images/s of a scan level over those of baseline records at a bandwidth (MiB/s), by repeat."""
    rows = committed.rows(file, f"bandwidth_mib_per_s == {bandwidth}")
    by_loader = rows.pivot(index="repeat", columns="loader", values="images_per_s")
    return by_loader[loader] / by_loader["baseline"]


def _bandwidths_of(rows: pd.DataFrame) -> list[float]:
    """Return the measured bandwidths (MiB/s) in ascending order."""
    return sorted(set(rows["bandwidth_mib_per_s"].dropna()))


def speedup_at_group_5(committed: Committed, file: str) -> list[Measured]:
    """Return the speed-up at group 5, by bandwidth, where storage limits it below its unthrottled speed."""
    level = committed.rows(file, "loader == 'group_5'")
    unthrottled = level[level["storage"] == "unlimited"]
    image_bytes = (unthrottled["epoch_bytes"] * unthrottled["num_epochs"] / unthrottled["num_images"]).mean()
    free = unthrottled["images_per_s"].median()
    limits = [bandwidth for bandwidth in _bandwidths_of(level) if bandwidth * MIB / image_bytes < free]
    return [mean_of(f"{limit:.3g} MiB/s", _speedup(committed, file, "group_5", limit)) for limit in limits]


def speedup_over_byte_ratio(committed: Committed, file: str) -> list[Measured]:
    """Return the speed-up over baseline divided by the ratio of bytes, for all throttles and scan groups."""
    rows = committed.rows(file)
    size = rows.groupby("loader")["epoch_bytes"].first()
    found = [
        _speedup(committed, file, level, bandwidth).mean() * size[level] / size["baseline"]
        for level in ("group_1", "group_2", "group_5", "group_10")
        for bandwidth in _bandwidths_of(rows)
    ]
    return [all_of("", found)]


def predicted_over_measured(
    committed: Committed, file: str, *, bounds: Sequence[str], beside: Sequence[str] = ()
) -> list[Measured]:
    """Return predicted over measured images/s for each limit in `bounds`, over the cells of all files."""
    cells = pd.concat([committed.rows(each, "not is_calibration") for each in (file, *beside)])
    return [
        all_of(
            f"limited by {bound.replace('in_flight', 'reads in flight')}",
            1 + cells.loc[cells["bound"] == bound, "error"],
        )
        for bound in bounds
    ]


def size_over_baseline(committed: Committed, file: str) -> list[Measured]:
    """Return bytes of progressive records in % of baseline records; of the files for reduced datasets."""
    size = committed.rows(file).set_index("format")["num_bytes"]
    return [
        exactly("native ImageNet", 100 * size["pcr"] / size["baseline"]),
        *_shares_of_reduced(committed, 10),
    ]


def copies_over_records(committed: Committed, file: str) -> list[Measured]:
    """Return bytes of the files and static copies at groups 1, 2 and 5 over those of one set of records."""
    size = committed.rows(file).set_index("format")["num_bytes"]
    return [exactly("", size["files_and_copies"] / size["pcr"])]


def encode_time_over_tfrecord(committed: Committed, file: str) -> list[Measured]:
    """Return seconds to write records in both encodings over those to write TFRecords, over repeats."""
    took_s = committed.rows(file).pivot(index="repeat", columns="format", values="build_s")
    return [mean_of("", took_s["records"] / took_s["tfrecord"])]


def decode_time_over_original(committed: Committed, file: str, *, decoder: str) -> list[Measured]:
    """Return CPU time to decode all scans over libjpeg-turbo's for the original file, over repeats."""
    rows = committed.rows(file, f"file == '10 scans' and area == 1 and decoder == '{decoder}'")
    return [mean_of("", rows["of_original"])]


def same_outputs(committed: Committed, file: str) -> list[Measured]:
    """Return the % of images for which a network's loss is equal for all scans and the original file."""
    rows = committed.rows(file, "decode == 'libjpeg'")
    loss = rows.pivot(index="image", columns="scan", values="loss")
    return [exactly("", 100 * float((loss["group_10"] == loss["baseline"]).mean()), len(loss))]


def of_groups(committed: Committed, file: str, *, groups: Sequence[int]) -> list[Measured]:
    """Return the final score of runs trained at each group minus the baseline's of the same seed, in points.

    Both are tested at full fidelity. Empty while a group has no runs yet.
    """
    rows = committed.rows(file)
    in_full = "tested_at == 'full' and " if "tested_at" in rows else ""
    if not {f"group_{group}" for group in groups} <= set(rows["scan"]):
        return []
    of_group = {group: committed.row(file, f"{in_full}scan == 'group_{group}'") for group in groups}
    return [difference_points(f"group {group}", row) for group, row in of_group.items()]


def at_half_the_bytes(committed: Committed, _: str) -> list[Measured]:
    """Return `of_groups` at group 5 for the fine-tuned datasets."""
    return [
        replace(each, case=dataset)
        for dataset in ("cars", "celebahq", "ham10000")
        for each in of_groups(committed, _REDUCED[dataset][1], groups=[5])
    ]


def loss_at_an_ms_ssim(committed: Committed, _: str, *, at_least: float) -> list[Measured]:
    """Return `of_groups` for every dataset, at its smallest group with at least this mean MS-SSIM."""
    found = []
    for dataset, (_task, file) in _REDUCED.items():
        good = committed.rows(_OVERVIEW, f"dataset == '{dataset}' and ms_ssim_mean >= {at_least}")
        group = int(good["group"].min())
        losses = of_groups(committed, file, groups=[group])
        found += [replace(each, case=f"{dataset}, group {group}") for each in losses]
    return found


def time_to_accuracy_at_group_5(committed: Committed, file: str) -> list[Measured]:
    """Return the projected speed-up to the target over baseline, where storage, not compute, limits group 5.

    Empty until every seed of both has reached the target.
    """
    level = committed.rows(file, "scan == 'group_5'").dropna(subset="speedup")
    from_storage = level["bandwidth_mib_per_s"] * MIB / level["image_bytes"]
    limited = level[from_storage < level["free_images_per_s"]]
    return [
        Measured(
            case=f"{row['bandwidth_mib_per_s']:.3g} MiB/s, projected",
            value=float(row["speedup"]),
            low=float(row["speedup_low"]),
            high=float(row["speedup_high"]),
            n=int(row["n"]),
            interval=NONE if pd.isna(row["speedup_low"]) else OVER_REPEATS,
            freedom=int(row["n"]) - 1,
        )
        for row in limited.to_dict("records")
    ]


def time_of_whole_trainings(committed: Committed, file: str, *, group: int) -> list[Measured]:
    """Return the speed-up to the target over baseline of the same seed or fold, from complete trainings."""
    found = []
    for (dataset, label), runs in committed.runs(file.rpartition("/")[0]).groupby(["dataset", "label"]):
        baseline, level = (runs[runs["scan"] == scan] for scan in ("baseline", f"group_{group}"))
        found.append(mean_ratio(f"{dataset} {label}", baseline, level, "time_to_target_s"))
    return found


def coarse_loses_less(committed: Committed, file: str) -> list[Measured]:
    """Return the loss of car models at group 1 minus the loss of coarser labels, both used at full fidelity.

    Losses are in % of each label's score above chance level. The interval is the widest that the 95 %
    intervals of the two losses allow.
    """
    query = "train_group == 1 and deployment == 'full'"
    fine = committed.row(file, query)
    found = []
    for task, words in (("cars_make", "make"), ("cars_is_corvette", "Corvette or not")):
        coarse = committed.row(f"tolerance/{task}/answers.csv", query)
        of_all = [row["lost_share"] / row["loss"] for row in (fine, coarse)]
        value, low, high = (
            100 * float(of_all[0] * fine[of_fine] - of_all[1] * coarse[of_coarse])
            for of_fine, of_coarse in (("loss", "loss"), ("loss_low", "loss_high"), ("loss_high", "loss_low"))
        )
        found.append(Measured(words, value, low, high, int(fine["n"]), BOOTSTRAP, inf))
    return found


def makes_lose_less(committed: Committed, file: str) -> list[Measured]:
    """Return the loss of fine-tuned car models at group 1 minus that of makes, tested at full fidelity.

    Losses are in % of the points by which the baseline's score exceeds the largest class's share. The
    interval is the widest that the 95 % intervals of the two losses allow.
    """
    losses = []
    for each in ("finetuning/cars/summary.csv", file):
        baseline, level = (committed.row(each, f"scan == '{scan}'") for scan in ("baseline", "group_1"))
        to_lose = baseline["final_top1_mean"] - baseline["majority_share"]
        losses.append((-level["difference_mean"] / to_lose, level["difference_ci95"] / to_lose))
    (fine, of_fine), (coarse, of_coarse) = losses
    value, half = 100 * float(fine - coarse), 100 * float(of_fine + of_coarse)
    measured = difference_points("make", committed.row(file, "scan == 'group_1'"))
    return [replace(measured, value=value, low=value - half, high=value + half)]


def curvature_over_ms_ssim(committed: Committed, file: str) -> list[Measured]:
    """Return how far each task's score bends from a line over MS-SSIM, as a share of its change."""
    tasks = committed.rows(file, "deployment == 'full'").drop_duplicates(["dataset", "label"])
    return [
        Measured(
            f"{row['dataset']} {row['label']}",
            float(row["curvature"]),
            float(row["curvature_low"]),
            float(row["curvature_high"]),
            n=int(row["n"]),
            interval=BOOTSTRAP,
            freedom=inf,
        )
        for row in tasks.to_dict("records")
    ]


def difference_of_policy(committed: Committed, file: str, *, scan: str) -> list[Measured]:
    """Return the final score of runs with a policy minus the baseline's of the same seed, in points.

    `scan` is the policy's name, which its settings follow in the file.
    """
    return [difference_points("", committed.row(file, f"scan.str.startswith('{scan}')"))]
