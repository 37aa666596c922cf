"""How claims of the papers are measured: functions that claims.yaml names, of committed files.

Every public function is one. It takes the committed files, the file that its claim names and the claim's
arguments, and returns a number per case; none where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf, nan

import numpy as np
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
)
from experiments.claims.verdict import at_least, half_the_gain
from experiments.combined.page import OFF, combined_frame
from experiments.echoing.frame import echo_frame
from experiments.threelc.frame import BesideFloats, beside_floats, gradient_frame, published
from pcr_exp.analysis.reporting_rules import may_say_speedup
from pcr_exp.analysis.statistics import by_repeat, paired_ratios
from pcr_exp.system import MIB

_REDUCED = {
    "cars": ("cars_model", "finetuning/cars/summary.csv"),
    "celebahq": ("celebahq_smiling", "finetuning/celebahq/summary.csv"),
    "ham10000": ("ham10000_dx", "finetuning/ham10000_folds/deployment_top1.csv"),
    "imagenet": ("imagenet_wnid", "from_scratch/imagenet_13394/summary.csv"),
}
"""Sets of images that are smaller than the published ones: tolerance's task, and what trained levels lose.
Lesions are judged by top-1, as the paper judges them; our own pages have balanced accuracy and AUC too."""
_OVERVIEW = "quality/overview.csv"
_NETWORKS = {
    "compressed_activations/one_batch_resnet18": "ResNet-18",
    "compressed_activations/one_batch_vgg11": "VGG-11",
}
_FLOAT_BITS = 32
_RESNET18 = "gradients_resnet18"
"""The folder with runs of a larger network than a claim's own file has."""
_LINK = "mode == 'ddp' and bandwidth_mbit_per_s"
DESIGNS = {
    "threelc": "codec_name == 'threelc' and zero_run",
    "others": "codec_name not in ['none', 'threelc', 'fp16', 'powersgd', 'local_steps']",
    "local_steps": "codec_name == 'local_steps'",
}
"""3LC, the designs that its paper compares with, and floats that are sent after every second batch."""


def share_of_bytes(committed: Committed, file: str, *, group: int) -> list[Measured]:
    """Bytes up to a scan group in % of the originals': native ImageNet, and the reduced datasets."""
    size = committed.rows(file, "decode == 'libjpeg, filtered'").set_index("loader")["epoch_bytes"]
    of_native = exactly("native ImageNet", 100 * size[f"group_{group}"] / size["baseline"])
    return [of_native, *_shares_of_reduced(committed, group)]


def _shares_of_reduced(committed: Committed, group: int) -> list[Measured]:
    return [
        exactly(dataset, 100 * committed.row(f"tolerance/{task}/bytes.csv", f"group == '{group}'")["share"])
        for dataset, (task, _) in _REDUCED.items()
    ]


def mean_image_kb(committed: Committed, file: str) -> list[Measured]:
    """Mean size of the native ImageNet files that loaders are measured on, kB."""
    files = committed.row(file, "format == 'files'")
    return [exactly("", files["num_bytes"] / files["num_images"] / 1000, int(files["num_images"]))]


def _speedup(committed: Committed, file: str, loader: str, bandwidth: float) -> pd.Series:
    """Images/s of a scan level over those of baseline records at a bandwidth (MiB/s), by repeat."""
    rows = committed.rows(file, f"bandwidth_mib_per_s == {bandwidth}")
    by_loader = rows.pivot(index="repeat", columns="loader", values="images_per_s")
    return by_loader[loader] / by_loader["baseline"]


def _bandwidths_of(rows: pd.DataFrame) -> list[float]:
    """Bandwidths (MiB/s) that were measured at, from low to high."""
    return sorted(set(rows["bandwidth_mib_per_s"].dropna()))


def speedup_at_group_5(committed: Committed, file: str) -> list[Measured]:
    """The speed-up at group 5 where storage limits it: below the loader's speed without a throttle."""
    level = committed.rows(file, "loader == 'group_5'")
    unthrottled = level[level["storage"] == "unlimited"]
    image_bytes = (unthrottled["epoch_bytes"] * unthrottled["num_epochs"] / unthrottled["num_images"]).mean()
    free = unthrottled["images_per_s"].median()
    limits = [bandwidth for bandwidth in _bandwidths_of(level) if bandwidth * MIB / image_bytes < free]
    return [mean_of(f"{limit:.3g} MiB/s", _speedup(committed, file, "group_5", limit)) for limit in limits]


def speedup_over_byte_ratio(committed: Committed, file: str) -> list[Measured]:
    """The speed-up over baseline as a share of the ratio of bytes, at every throttle and scan group."""
    rows = committed.rows(file)
    size = rows.groupby("loader")["epoch_bytes"].first()
    found = [
        _speedup(committed, file, level, bandwidth).mean() * size[level] / size["baseline"]
        for level in ("group_1", "group_2", "group_5", "group_10")
        for bandwidth in _bandwidths_of(rows)
    ]
    return [all_of("", found)]


def predicted_over_measured(committed: Committed, file: str, *, bounds: Sequence[str]) -> list[Measured]:
    """Predicted images/s over measured ones, in all cells that something limits."""
    return [
        all_of(
            f"limited by {bound.replace('in_flight', 'reads in flight')}",
            1 + committed.rows(file, f"not is_calibration and bound == '{bound}'")["error"],
        )
        for bound in bounds
    ]


def size_over_baseline(committed: Committed, file: str) -> list[Measured]:
    """Bytes of progressive records in % of those of baseline records; of reduced datasets, of the files."""
    size = committed.rows(file).set_index("format")["num_bytes"]
    return [
        exactly("native ImageNet", 100 * size["pcr"] / size["baseline"]),
        *_shares_of_reduced(committed, 10),
    ]


def copies_over_records(committed: Committed, file: str) -> list[Measured]:
    """Bytes of the files and of static copies at groups 1, 2 and 5 over those of one set of records."""
    size = committed.rows(file).set_index("format")["num_bytes"]
    return [exactly("", size["files_and_copies"] / size["pcr"])]


def encode_time_over_tfrecord(committed: Committed, file: str) -> list[Measured]:
    """Seconds to write records in both encodings over those to write TFRecords, by repeat."""
    took_s = committed.rows(file).pivot(index="repeat", columns="format", values="build_s")
    return [mean_of("", took_s["records"] / took_s["tfrecord"])]


def decode_time_over_original(committed: Committed, file: str, *, decoder: str) -> list[Measured]:
    """CPU time to decode all scans over libjpeg-turbo's for the original file, by repeat."""
    rows = committed.rows(file, f"file == '10 scans' and area == 1 and decoder == '{decoder}'")
    return [mean_of("", rows["of_original"])]


def same_outputs(committed: Committed, file: str) -> list[Measured]:
    """Images, in %, for which a network has the same loss from all scans as from the original file."""
    rows = committed.rows(file, "decode == 'libjpeg'")
    loss = rows.pivot(index="image", columns="scan", values="loss")
    return [exactly("", 100 * float((loss["group_10"] == loss["baseline"]).mean()), len(loss))]


def of_groups(committed: Committed, file: str, *, groups: Sequence[int]) -> list[Measured]:
    """Final score of runs trained at groups less that of baseline runs of the same seed, points.

    Both tested in full. Nothing while a group has no runs yet.
    """
    rows = committed.rows(file)
    in_full = "tested_at == 'full' and " if "tested_at" in rows else ""
    if not {f"group_{group}" for group in groups} <= set(rows["scan"]):
        return []
    of_group = {group: committed.row(file, f"{in_full}scan == 'group_{group}'") for group in groups}
    return [difference_points(f"group {group}", row) for group, row in of_group.items()]


def at_half_the_bytes(committed: Committed, _: str) -> list[Measured]:
    """`of_groups` of the sets that are fine-tuned, at group 5."""
    return [
        replace(each, case=dataset)
        for dataset in ("cars", "celebahq", "ham10000")
        for each in of_groups(committed, _REDUCED[dataset][1], groups=[5])
    ]


def loss_at_an_ms_ssim(committed: Committed, _: str, *, at_least: float) -> list[Measured]:
    """`of_groups` of every set at the smallest group whose images have so high a mean MS-SSIM."""
    found = []
    for dataset, (_task, file) in _REDUCED.items():
        good = committed.rows(_OVERVIEW, f"dataset == '{dataset}' and ms_ssim_mean >= {at_least}")
        group = int(good["group"].min())
        losses = of_groups(committed, file, groups=[group])
        found += [replace(each, case=f"{dataset}, group {group}") for each in losses]
    return found


def time_to_accuracy_at_group_5(committed: Committed, file: str) -> list[Measured]:
    """Times as soon at the target as baseline, projected, where storage and not compute limits group 5.

    Nothing while not every seed of both reached it.
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
    """Times as soon at the target as baseline of the same seed, of trainings that ran from start to end."""
    runs = committed.runs(file.rpartition("/")[0])
    baseline, level = (runs[runs["scan"] == scan] for scan in ("baseline", f"group_{group}"))
    return [_times_as_fast("", baseline, level, "time_to_target_s")]


def coarse_loses_less(committed: Committed, file: str) -> list[Measured]:
    """The loss of cars by model at group 1 less that of coarser labels, used at full fidelity.

    In % of each label's score above its chance level. The interval is the widest that the 95 % intervals of
    the two losses allow.
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


def curvature_over_ms_ssim(committed: Committed, file: str) -> list[Measured]:
    """How far a task's score bends from a line over MS-SSIM, as a share of what it changes, by task."""
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
    """Final score of runs that followed a policy less that of baseline runs of the same seed, points.

    Its settings stand behind its name.
    """
    return [difference_points("", committed.row(file, f"scan.str.startswith('{scan}')"))]


def _by_factor(committed: Committed, file: str) -> dict[float, pd.DataFrame]:
    """Runs of a folder by echo factor, a row of `echo_frame` per run, seed by seed."""
    frame = echo_frame(committed.runs(file.rpartition("/")[0]))
    return {factor: by_repeat(frame[frame["factor"] == factor]) for factor in sorted(set(frame["factor"]))}


def time_over_model(committed: Committed, file: str) -> list[Measured]:
    """Seconds per fresh sample over max(t_up, e t_down) of the same run, at every echo factor e."""
    found = []
    for factor, runs in _by_factor(committed, file).items():
        model_s = np.maximum(runs["upstream_s_per_sample"], factor * runs["downstream_s_per_sample"])
        found.append(mean_of(f"e = {factor:g}", runs["s_per_fresh"] / model_s))
    return found


def cost_of_free_repeats(committed: Committed, file: str) -> list[Measured]:
    """Seconds per fresh sample at an echo factor below R, over those of the same seed without echo."""
    runs = _by_factor(committed, file)
    ratios = {factor: of_factor["upstream_ratio"].mean() for factor, of_factor in runs.items()}
    return [
        mean_of(
            f"e = {factor:g}, R = {ratios[factor]:.1f}",
            (of_factor["s_per_fresh"] / runs[1.0]["s_per_fresh"]).dropna(),
        )
        for factor, of_factor in runs.items()
        if 1 < factor < ratios[factor]
    ]


def speedup_where_the_network_limits(committed: Committed, file: str) -> list[Measured]:
    """Times as fast by echo alone as without, of one seed, where sending gradients limits."""
    runs = _by_combination(committed, file, "processes == 2")
    return [_times_as_fast("", runs[OFF], runs["echo 2x"], "seconds")]


def _by_combination(committed: Committed, file: str, query: str = "") -> dict[str, pd.DataFrame]:
    """Runs of a folder by combination, a row of `combined_frame` per run."""
    frame = combined_frame(committed.runs(file.rpartition("/")[0]))
    chosen = frame.query(query) if query else frame
    return {str(name): runs for name, runs in chosen.groupby("combination")}


def _times_as_fast(case: str, over: pd.DataFrame, under: pd.DataFrame, measure: str) -> Measured:
    """NaN where no speed-up may be said of these runs."""
    return mean_of(case, [nan] if may_say_speedup(over, under) else paired_ratios(over, under, measure))


def _codecs(committed: Committed, file: str, alike: str, chosen: str, *beside: str) -> Iterator[BesideFloats]:
    """Of the runs beside a file, and of those in other folders."""
    folders = dict.fromkeys([file.rpartition("/")[0], *beside])
    runs = pd.concat([committed.runs(folder) for folder in folders], ignore_index=True)
    return beside_floats(gradient_frame(runs), alike, chosen)


def traffic(committed: Committed, file: str) -> list[Measured]:
    """Bits of floats over bits sent of large tensors, push and pull together, with a parameter server."""
    return [
        _as_published(
            mean_of(_s(row), _FLOAT_BITS / by_repeat(runs)["coded_bits"]), published(row.to_dict()).ratio
        )
        for row, runs, _ in _codecs(committed, file, "mode == 'server'", DESIGNS["threelc"])
    ]


def _as_published(measured: Measured, number: float) -> Measured:
    """A case that holds if it is at least the ratio that was published of it, in part if half of its gain."""
    case = f"{measured.case}, published {number:g}:"
    return replace(measured, case=case, holds=at_least(number), partly=half_the_gain(number))


def speedups_at_10_mbit(committed: Committed, file: str, *, designs: str) -> list[Measured]:
    """Times as fast as floats of the same seed at 10 Mbit/s, beside the published number of each."""
    return [
        _as_published(
            _times_as_fast(row["case"], runs, floats, "images_per_s"),
            published(row.to_dict()).speedup_at_10_mbit,
        )
        for row, runs, floats in _codecs(committed, file, f"{_LINK} == 10", DESIGNS[designs], _RESNET18)
    ]


def speedups_at_1_gbit(committed: Committed, file: str) -> list[Measured]:
    """Times as fast as floats of the same seed at 1 Gbit/s, at every s."""
    return [
        _times_as_fast(row["case"], runs, floats, "images_per_s")
        for row, runs, floats in _codecs(committed, file, f"{_LINK} == 1000", DESIGNS["threelc"], _RESNET18)
    ]


def speedup_over_the_best_other(committed: Committed, file: str) -> list[Measured]:
    """Images/s of 3LC at s = 1 over those of the same seed of the fastest other design, at 10 Mbit/s."""

    def at_10(chosen: str) -> Iterator[BesideFloats]:
        return _codecs(committed, file, f"{_LINK} == 10", chosen, _RESNET18)

    found = []
    for row, ours, _ in at_10(f"{DESIGNS['threelc']} and sparsity == 1"):
        others = [runs for other, runs, _ in at_10(DESIGNS["others"]) if other["model"] == row["model"]]
        fastest = max(others, key=lambda runs: by_repeat(runs)["images_per_s"].mean())
        found.append(_times_as_fast(row["case"], ours, fastest, "images_per_s"))
    return found


def ratio_without_zero_runs(committed: Committed, file: str) -> list[Measured]:
    """Bits of floats over bits of a message without zero-run encoding, which depend on no data."""
    found = _codecs(committed, file, f"{_LINK} == 10", "codec_name == 'threelc' and not zero_run")
    return [exactly(_s(row), _FLOAT_BITS / runs["coded_bits"].iloc[0]) for row, runs, _ in found]


def gain_by_zero_runs(committed: Committed, file: str) -> list[Measured]:
    """Bits without zero-run encoding over bits with it, s = 1."""
    found = _codecs(committed, file, f"{_LINK} == 10", "codec_name == 'threelc' and sparsity == 1")
    with_runs = {bool(row["zero_run"]): by_repeat(runs)["coded_bits"] for row, runs, _ in found}
    # A message without zero-run encoding has the same bits whatever is sent: one run of it is enough.
    return [mean_of("", with_runs[False].iloc[0] / with_runs[True])]


def accuracy_of_codecs(committed: Committed, file: str) -> list[Measured]:
    """Last top-1 less that of floats of the same seed after 256 updates, points."""
    rows = committed.rows(file, f"mode == 'ddp' and updates == 256 and {DESIGNS['threelc']}")
    return [difference_points(_s(row), row) for _, row in rows.iterrows()]


def _s(row: pd.Series) -> str:
    return f"s = {row['sparsity']:.2f}"


def _memory(committed: Committed) -> dict[str, pd.DataFrame]:
    """By network, what an update keeps: a row per mode."""
    return {
        words: committed.rows(f"{folder}/activation_memory.csv").set_index("mode")
        for folder, words in _NETWORKS.items()
    }


def kept_bytes_over_ours(committed: Committed, file: str) -> list[Measured]:
    """All bytes that wait for backward without compression over those with it."""
    found = []
    for words, modes in _memory(committed).items():
        kept = modes["kept_bytes"]
        found.append(exactly(f"{words}, bound 0.01", kept["none"] / kept["quantise 0.01"]))
    of_combination = _by_combination(committed, file)
    for name, words in (("error bounded", "exact form"), ("error bounded paper", "paper's form")):
        ratios = paired_ratios(of_combination[OFF], of_combination[name], "kept_bytes_mean")
        found.append(mean_of(f"ShuffleNetV2 in training, {words}", ratios))
    return found


def conv_ratio_at_the_last_look(committed: Committed, file: str) -> list[Measured]:
    """Bytes of convolution inputs over those kept, bounds as a training adapted them at its last look."""
    layers = committed.rows(file)
    last = layers[layers["step"] == layers["step"].max()]
    kept = last["packed_bytes"].sum() + last["held_bytes"].sum()
    return [mean_of("", [last["raw_bytes"].sum() / kept])]


def lossless_ratio(committed: Committed, _: str) -> list[Measured]:
    """Bytes of convolution inputs over those of lossless compression."""
    return [exactly(words, modes["ratio"]["lossless"]) for words, modes in _memory(committed).items()]


def share_of_conv_inputs(committed: Committed, _: str) -> list[Measured]:
    """Convolution inputs in % of everything that waits for backward."""
    return [
        exactly(words, 100 * modes["conv_bytes"]["lossless"] / modes["kept_bytes"]["none"])
        for words, modes in _memory(committed).items()
    ]


def error_std(committed: Committed, file: str) -> list[Measured]:
    """Standard deviation of a codec's errors, in bounds."""
    rows = committed.rows(file).groupby("codec")[["std", "num_values"]].first()
    return [exactly(str(codec), row["std"], int(row["num_values"])) for codec, row in rows.iterrows()]


def kurtosis(committed: Committed, file: str) -> list[Measured]:
    """Kurtosis of weight gradient errors at a bound of 0.01, by batch size."""
    rows = committed.rows(file, "bound == 0.01").groupby("batch_size")[["kurtosis", "num_weights"]].first()
    return [exactly(f"N = {size}", row["kurtosis"], int(row["num_weights"])) for size, row in rows.iterrows()]


def predicted_sigma(committed: Committed, file: str, *, form: str) -> list[Measured]:
    """Predicted over measured standard deviation of gradient errors, every layer, bound and batch size."""
    rows = committed.rows(file, "measured_sigma > 0")  # layers without an error were kept exactly
    return [all_of("ResNet-18", rows[f"{form}_sigma"] / rows["measured_sigma"])]


def accuracy_of_activations(committed: Committed, file: str, *, mode: str) -> list[Measured]:
    """Last top-1 less that without compression, same seed, points, by what tells runs of a mode apart."""
    rows = committed.rows(file)
    rows = rows[rows["value"].str.startswith(mode)]
    return [difference_points(str(row["value"]).rpartition("=")[2], row) for _, row in rows.iterrows()]
