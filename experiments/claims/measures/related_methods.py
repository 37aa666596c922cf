"""Measures for the claims of data echoing, 3LC and compressed activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from experiments.claims.committed import (
    OVER_REPEATS,
    Committed,
    Measured,
    all_of,
    difference_points,
    exactly,
    mean_of,
    mean_ratio,
)
from experiments.claims.verdict import at_least, half_the_gain
from experiments.combined.page import OFF, combined_frame
from experiments.echoing.figures import name_of
from experiments.echoing.frame import BASELINE, PANEL_KEYS, SERIES_KEYS, echo_frame, tuned
from experiments.threelc.frame import BesideFloats, beside_floats, gradient_frame, published
from pcr_exp.analysis.intervals import differences
from pcr_exp.analysis.statistics import by_repeat, paired_ratios

_NETWORKS = {
    "compressed_activations/one_batch_resnet18": "ResNet-18",
    "compressed_activations/one_batch_vgg11": "VGG-11",
}
_FLOAT_BITS = 32
_RESNET18 = "gradients_resnet18"
"""Folder with runs of a larger network than the claims' own files have."""
_LINK = "mode == 'ddp' and bandwidth_mbit_per_s"
DESIGNS = {
    "threelc": "codec_name == 'threelc' and zero_run",
    "others": "codec_name not in ['none', 'threelc', 'fp16', 'powersgd', 'local_steps']",
    "local_steps": "codec_name == 'local_steps'",
}
"""Queries for 3LC, the designs that its paper compares with, and floats sent after every second batch."""


def _by_factor(committed: Committed, file: str, ratios: str) -> dict[float, pd.DataFrame]:
    """Return a folder's runs by echo factor, a row of `echo_frame` per run.

    `ratios` is a condition on R, the time to read a sample over the time to train on it.
    """
    frame = echo_frame(committed.runs(file.rpartition("/")[0])).query(f"upstream_ratio {ratios}")
    return {factor: frame[frame["factor"] == factor] for factor in sorted(set(frame["factor"]))}


def time_over_model(committed: Committed, file: str) -> list[Measured]:
    """Return seconds per fresh sample over max(t_up, e t_down) of the same run, for every echo factor e."""
    found = []
    for factor, runs in _by_factor(committed, file, "> 1").items():
        model_s = np.maximum(runs["upstream_s_per_sample"], factor * runs["downstream_s_per_sample"])
        found.append(mean_of(f"e = {factor:g}", runs["s_per_fresh"] / model_s))
    return found


def cost_of_free_repeats(committed: Committed, file: str) -> list[Measured]:
    """Return seconds per fresh sample at echo factors below R, over the same seed's without echo."""
    runs = _by_factor(committed, file, "> 1")
    ratios = {factor: of_factor["upstream_ratio"].mean() for factor, of_factor in runs.items()}
    return [
        mean_ratio(f"e = {factor:g}, R = {ratios[factor]:.1f}", of_factor, runs[1.0], "s_per_fresh")
        for factor, of_factor in runs.items()
        if 1 < factor < ratios[factor]
    ]


def speedup_where_reading_is_no_limit(committed: Committed, file: str, *, beside: str) -> list[Measured]:
    """Return the speed-up of echo at e = 2 over none, for the same seed and number of updates.

    The limit is computing (R below 1), or sending gradients: the combinations of `beside`.
    """
    factors = _by_factor(committed, file, "< 1")
    once, twice = (
        factors[e].assign(seconds=factors[e]["s_per_fresh"] * factors[e]["fresh"]) for e in (1.0, 2.0)
    )
    combined = _by_combination(committed, beside, "processes == 2")
    return [
        mean_ratio("computing limits", once, twice, "seconds"),
        mean_ratio("sending gradients limits", combined[OFF], combined["echo 2x"], "seconds"),
    ]


def fresh_samples_over(committed: Committed, file: str, *, pairs: Sequence[Sequence[str]]) -> list[Measured]:
    """Return fresh samples to the target, of the first of each pair of echoes over those of the second.

    Each echo is at its best learning rate. Ratios are geometric means over the seeds that all echoes have.
    The variance of logarithms over seeds is pooled over all echoes (`intervals.differences`).
    """
    frame = echo_frame(committed.runs(file.rpartition("/")[0]))
    best = tuned(frame, "fresh_to_target")
    keys = [*PANEL_KEYS, *SERIES_KEYS, "learning_rate"]
    logs = {}
    for place, row in enumerate(best.to_dict("records")):
        runs = frame.merge(best.loc[[place], keys], on=keys)
        logs[name_of(row)] = np.log(by_repeat(runs)["fresh_to_target"])
    of_seeds = pd.DataFrame(logs).dropna()
    found = []
    for over, under in pairs:
        names = [under, over, *(name for name in of_seeds if name not in (over, under))]
        joined = differences(of_seeds[names].to_numpy().T)
        mean, half = float(joined.mean[0]), float(joined.half_width[0])
        value, low, high = (float(np.exp(mean + sign * half)) for sign in (0, -1, 1))
        freedom = float(joined.freedom[0])
        found.append(Measured(f"{over} / {under}", value, low, high, len(of_seeds), OVER_REPEATS, freedom))
    return found


def score_of_echoes(committed: Committed, file: str) -> list[Measured]:
    """Return the last score of every echo less the baseline's, in points, each at its most accurate rate."""
    best = tuned(echo_frame(committed.runs(file.rpartition("/")[0])), "final_score")
    return [
        difference_points(name_of(dict(row)), row) for _, row in best[best["variant"] != BASELINE].iterrows()
    ]


def _by_combination(committed: Committed, file: str, query: str = "") -> dict[str, pd.DataFrame]:
    """Return a folder's runs by combination, a row of `combined_frame` per run."""
    frame = combined_frame(committed.runs(file.rpartition("/")[0]))
    chosen = frame.query(query) if query else frame
    return {str(name): runs for name, runs in chosen.groupby("combination")}


def _codecs(committed: Committed, file: str, alike: str, chosen: str, *beside: str) -> Iterator[BesideFloats]:
    """Iterate over `beside_floats` of the runs next to a file and those in the folders `beside`."""
    folders = dict.fromkeys([file.rpartition("/")[0], *beside])
    runs = pd.concat([committed.runs(folder) for folder in folders], ignore_index=True)
    return beside_floats(gradient_frame(runs), alike, chosen)


def traffic(committed: Committed, file: str) -> list[Measured]:
    """Return float bits over bits sent of large tensors, push and pull together, with a parameter server."""
    return [
        _as_published(
            mean_of(_s(row), _FLOAT_BITS / by_repeat(runs)["coded_bits"]), published(row.to_dict()).ratio
        )
        for row, runs, _ in _codecs(committed, file, "mode == 'server'", DESIGNS["threelc"])
    ]


def _as_published(measured: Measured, number: float) -> Measured:
    """Make a case hold from its published ratio upwards, and in part from half of that ratio's gain."""
    case = f"{measured.case}, published {number:g}:"
    return replace(measured, case=case, holds=at_least(number), partly=half_the_gain(number))


def speedups_at_10_mbit(committed: Committed, file: str, *, designs: str) -> list[Measured]:
    """Return speed-ups over floats of the same seed at 10 Mbit/s, each judged by its published number."""
    return [
        _as_published(
            mean_ratio(row["case"], runs, floats, "images_per_s"),
            published(row.to_dict()).speedup_at_10_mbit,
        )
        for row, runs, floats in _codecs(committed, file, f"{_LINK} == 10", DESIGNS[designs], _RESNET18)
    ]


def speedups_at_1_gbit(committed: Committed, file: str) -> list[Measured]:
    """Return speed-ups over floats of the same seed at 1 Gbit/s, for every s."""
    return [
        mean_ratio(row["case"], runs, floats, "images_per_s")
        for row, runs, floats in _codecs(committed, file, f"{_LINK} == 1000", DESIGNS["threelc"], _RESNET18)
    ]


def speedup_over_the_best_other(committed: Committed, file: str) -> list[Measured]:
    """Return images/s of 3LC at s = 1 over the fastest other design's, same seed, at 10 Mbit/s."""

    def at_10(chosen: str) -> Iterator[BesideFloats]:
        return _codecs(committed, file, f"{_LINK} == 10", chosen, _RESNET18)

    found = []
    for row, ours, _ in at_10(f"{DESIGNS['threelc']} and sparsity == 1"):
        others = [runs for other, runs, _ in at_10(DESIGNS["others"]) if other["model"] == row["model"]]
        fastest = max(others, key=lambda runs: by_repeat(runs)["images_per_s"].mean())
        found.append(mean_ratio(row["case"], ours, fastest, "images_per_s"))
    return found


def ratio_without_zero_runs(committed: Committed, file: str) -> list[Measured]:
    """Return float bits over message bits without zero-run encoding, which are independent of the data."""
    found = _codecs(committed, file, f"{_LINK} == 10", "codec_name == 'threelc' and not zero_run")
    return [exactly(_s(row), _FLOAT_BITS / runs["coded_bits"].iloc[0]) for row, runs, _ in found]


def gain_by_zero_runs(committed: Committed, file: str) -> list[Measured]:
    """Return bits without zero-run encoding over bits with it, at s = 1."""
    found = _codecs(committed, file, f"{_LINK} == 10", "codec_name == 'threelc' and sparsity == 1")
    with_runs = {bool(row["zero_run"]): by_repeat(runs)["coded_bits"] for row, runs, _ in found}
    # Without zero-run encoding, the size of a message is independent of the data: one run is enough.
    return [mean_of("", with_runs[False].iloc[0] / with_runs[True])]


def accuracy_of_codecs(committed: Committed, file: str) -> list[Measured]:
    """Return the last top-1 minus that of floats of the same seed, after 256 updates, in points."""
    rows = committed.rows(file, f"mode == 'ddp' and updates == 256 and {DESIGNS['threelc']}")
    return [difference_points(_s(row), row) for _, row in rows.iterrows()]


def _s(row: pd.Series) -> str:
    return f"s = {row['sparsity']:.2f}"


def _memory(committed: Committed) -> dict[str, pd.DataFrame]:
    """Return the activation memory of an update by network, with a row per mode."""
    return {
        words: committed.rows(f"{folder}/activation_memory.csv").set_index("mode")
        for folder, words in _NETWORKS.items()
    }


def kept_bytes_over_ours(committed: Committed, file: str) -> list[Measured]:
    """Return all bytes saved for backward without compression over those with it."""
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
    """Return raw over saved bytes of convolution inputs, bounds adapted, at a training's last measurement."""
    layers = committed.rows(file)
    last = layers[layers["step"] == layers["step"].max()]
    kept = last["packed_bytes"].sum() + last["held_bytes"].sum()
    return [mean_of("", [last["raw_bytes"].sum() / kept])]


def lossless_ratio(committed: Committed, _: str) -> list[Measured]:
    """Return bytes of convolution inputs over those of lossless compression."""
    return [exactly(words, modes["ratio"]["lossless"]) for words, modes in _memory(committed).items()]


def share_of_conv_inputs(committed: Committed, _: str) -> list[Measured]:
    """Return convolution inputs in % of all bytes saved for backward."""
    return [
        exactly(words, 100 * modes["conv_bytes"]["lossless"] / modes["kept_bytes"]["none"])
        for words, modes in _memory(committed).items()
    ]


def error_std(committed: Committed, file: str) -> list[Measured]:
    """Return the standard deviation of each codec's errors, as a multiple of the bound."""
    rows = committed.rows(file).groupby("codec")[["std", "num_values"]].first()
    return [exactly(str(codec), row["std"], int(row["num_values"])) for codec, row in rows.iterrows()]


def kurtosis(committed: Committed, file: str) -> list[Measured]:
    """Return the kurtosis of weight gradient errors at a bound of 0.01, by batch size."""
    rows = committed.rows(file, "bound == 0.01").groupby("batch_size")[["kurtosis", "num_weights"]].first()
    return [exactly(f"N = {size}", row["kurtosis"], int(row["num_weights"])) for size, row in rows.iterrows()]


def predicted_sigma(committed: Committed, file: str, *, form: str) -> list[Measured]:
    """Return predicted over measured std of gradient errors, over all layers, bounds and batch sizes."""
    rows = committed.rows(file, "measured_sigma > 0")  # layers without an error were saved exactly
    return [all_of("ResNet-18", rows[f"{form}_sigma"] / rows["measured_sigma"])]


def accuracy_of_activations(committed: Committed, file: str, *, mode: str) -> list[Measured]:
    """Return the last top-1 minus that without compression, same seed, in points, per setting of a mode."""
    rows = committed.rows(file)
    rows = rows[rows["value"].str.startswith(mode)]
    return [difference_points(str(row["value"]).rpartition("=")[2], row) for _, row in rows.iterrows()]
