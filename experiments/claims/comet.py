"""What COMET claims: error-bounded activation compression (Jin et al.; arXiv 2011.09017, PVLDB 2022)."""

from __future__ import annotations

import math

from experiments.claims.claim import FAIRLY_SURE, READ, UNSURE, Claim, Measure
from experiments.claims.committed import Committed, Measured, all_of, difference_points, exactly, mean_of
from experiments.claims.verdict import EQUAL, NEAR, Range, around, at_least, half_the_gain
from experiments.combined.frame import OFF, combined_frame
from pcr_exp.analysis.statistics import paired_ratios

UNIFORM_STD = 1 / math.sqrt(3)
"""Standard deviation of errors that are uniform within a bound of 1."""
NORMAL_KURTOSIS, UNIFORM_KURTOSIS, LAPLACE_KURTOSIS = 3.0, 1.8, 6.0
NEARER_TO_NORMAL = Range((UNIFORM_KURTOSIS + NORMAL_KURTOSIS) / 2, (NORMAL_KURTOSIS + LAPLACE_KURTOSIS) / 2)
_RESNET, _VGG = "activations/ham10000_resnet18", "activations/ham10000_vgg11"
_BOUND = "quantise 0.01"
_TRAINED = "compressed_activations"
_NETWORKS = {_RESNET: "ResNet-18", _VGG: "VGG-11"}


def kept_bytes_over_ours(committed: Committed, file: str) -> list[Measured]:
    """All bytes that wait for backward without compression over those with it."""
    found = []
    for folder, words in _NETWORKS.items():
        kept = committed.rows(f"{folder}/activation_memory.csv").set_index("mode")["kept_bytes"]
        found.append(exactly(f"{words}, bound 0.01", kept["none"] / kept[_BOUND]))
    of_combination = dict(
        iter(combined_frame(committed.runs(file.rpartition("/")[0])).groupby("combination"))
    )
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
    return [
        exactly(words, committed.row(f"{folder}/activation_memory.csv", "mode == 'lossless'")["ratio"])
        for folder, words in _NETWORKS.items()
    ]


def share_of_conv_inputs(committed: Committed, _: str) -> list[Measured]:
    """Convolution inputs in % of everything that waits for backward."""
    found = []
    for folder, words in _NETWORKS.items():
        file = f"{folder}/activation_memory.csv"
        conv_bytes = float(committed.row(file, "mode == 'lossless'")["conv_bytes"])
        kept_bytes = float(committed.row(file, "mode == 'none'")["kept_bytes"])
        found.append(exactly(words, 100 * conv_bytes / kept_bytes))
    return found


def error_std(committed: Committed, file: str) -> list[Measured]:
    """Standard deviation of a codec's errors, in bounds."""
    rows = committed.rows(file).groupby("codec")[["std", "num_values"]].first()
    return [exactly(str(codec), row["std"], int(row["num_values"])) for codec, row in rows.iterrows()]


def kurtosis(committed: Committed, file: str) -> list[Measured]:
    """Kurtosis of weight gradient errors at a bound of 0.01, by batch size."""
    rows = committed.rows(file, "bound == 0.01").groupby("batch_size")[["kurtosis", "num_weights"]].first()
    return [exactly(f"N = {size}", row["kurtosis"], int(row["num_weights"])) for size, row in rows.iterrows()]


def predicted_sigma(form: str) -> Measure:
    """Predicted over measured standard deviation of gradient errors, every layer, bound and batch size."""

    def measure(committed: Committed, file: str) -> list[Measured]:
        # Layers without an error were kept exactly.
        rows = committed.rows(file, "measured_sigma > 0")
        return [all_of("ResNet-18", rows[f"{form}_sigma"] / rows["measured_sigma"])]

    return measure


def accuracy_points(committed: Committed, file: str) -> list[Measured]:
    """Last top-1 less that without compression, same seed, points."""
    rows = committed.rows(file, "value.str.startswith('error_bounded')")
    return [
        difference_points(str(row["value"]).partition("error_model=")[2], row) for _, row in rows.iterrows()
    ]


CLAIMS = [
    Claim(
        name="13.5 times less memory",
        says="Training keeps up to 13.5 times fewer bytes for backward",
        source="abstract",
        published="up to 13.5 x (its best network)",
        certainty=READ,
        ours="all bytes that wait for backward over those with compression",
        unit="x",
        file=f"{_TRAINED}/combined.csv",
        measure=kept_bytes_over_ours,
        holds=at_least(13.5),
        partly=half_the_gain(13.5),
        shown_in="compressed_activations/README.md",
    ),
    Claim(
        name="ResNet-18 at 10.7",
        says="Convolution inputs of ResNet-18 are kept in a 10.7th of their bytes",
        source="table of memory",
        published="10.7 x",
        certainty=UNSURE,
        ours="bytes of ResNet-18's convolution inputs over those kept, bounds of the last look",
        unit="x",
        file=f"{_RESNET}/layer_bounds.csv",
        measure=conv_ratio_at_the_last_look,
        holds=at_least(10.7),
        partly=half_the_gain(10.7),
        shown_in="activations/ham10000_resnet18/layer_bounds.png",
    ),
    Claim(
        name="convolutions dominate",
        says="Inputs of convolutions are most of what training keeps",
        source="figure of activation memory",
        published="they dominate; other activations are left alone",
        certainty=FAIRLY_SURE,
        ours="convolution inputs in % of all bytes that wait for backward",
        unit="%",
        file=f"{_RESNET}/activation_memory.csv",
        measure=share_of_conv_inputs,
        holds=at_least(50),
        partly=at_least(50 * (1 - NEAR)),
        shown_in="activations/README.md",
    ),
    Claim(
        name="lossless is half",
        says="Lossless compression makes activations about 2 times smaller",
        source="table of memory",
        published="about 2 x",
        certainty=FAIRLY_SURE,
        ours="bytes of convolution inputs over those compressed without loss",
        unit="x",
        file=f"{_RESNET}/activation_memory.csv",
        measure=lossless_ratio,
        holds=around(2, EQUAL),
        partly=around(2, NEAR),
        shown_in="activations/README.md",
    ),
    Claim(
        name="uniform errors",
        says="The codec's errors are uniform within its bound",
        source="figure of codec errors",
        published="uniform: a standard deviation of 0.577 bounds",
        certainty=FAIRLY_SURE,
        ours="standard deviation of errors of values that are not 0, in bounds (0.01)",
        file=f"{_RESNET}/codec_errors.csv",
        measure=error_std,
        holds=around(UNIFORM_STD, EQUAL),
        partly=around(UNIFORM_STD, NEAR),
        shown_in="activations/ham10000_resnet18/codec_errors.png",
    ),
    Claim(
        name="normal gradient errors",
        says="The errors of weight gradients are normal",
        source="figure of gradient errors, by batch size",
        published="normal: a kurtosis of 3",
        certainty=FAIRLY_SURE,
        ours="kurtosis of gradient errors at a bound of 0.01 (uniform 1.8, Laplace 6)",
        file=f"{_RESNET}/gradient_errors.csv",
        measure=kurtosis,
        holds=around(NORMAL_KURTOSIS, EQUAL),
        partly=NEARER_TO_NORMAL,
        shown_in="activations/ham10000_resnet18/gradient_errors.png",
    ),
    Claim(
        name="formula of the error",
        says="Gradient errors have a deviation of 0.32 Lbar sqrt(N R) eb",
        source="error model",
        published="a about 0.32",
        certainty=FAIRLY_SURE,
        ours="predicted over measured deviation, every layer, bound and batch size",
        file=f"{_RESNET}/gradient_sigma.csv",
        measure=predicted_sigma("paper"),
        holds=around(1, EQUAL),
        partly=around(1, NEAR),
        shown_in="activations/ham10000_resnet18/gradient_sigma.png",
    ),
    Claim(
        name="no accuracy is lost",
        says="Training with compressed activations loses little or no accuracy",
        source="abstract; table of accuracy",
        published="little or none (abstract); at most about 0.3 points (recalled, unsure)",
        certainty=READ,
        ours="last top-1 less that without compression, same seed, 192 updates",
        unit="points",
        file=f"{_TRAINED}/comparison.csv",
        measure=accuracy_points,
        holds=at_least(-1),
        partly=at_least(-2),
        is_accuracy=True,
        shown_in="compressed_activations/README.md",
        command=(
            "python -m experiments.train -m experiment=from_scratch dataset=imagenet "
            "dataset.root=../shared/data/imagenet scan=baseline "
            "activations=none,error_bounded,error_bounded_paper"
        ),
        cost="9 trainings of 35 to 60 minutes on one core",
    ),
    Claim(
        name="errors of a share of the momentum",
        says="Gradient errors of 1 % of the mean momentum cost no accuracy",
        source="figure of accuracy under injected errors (0.01, 0.02, 0.05)",
        published="0.01 is safe",
        certainty=FAIRLY_SURE,
        is_accuracy=True,
        shown_in="",
        not_here="no runner injects errors into gradients",
    ),
    Claim(
        name="1.8 times the state of the art",
        says="It compresses 1.8 times as much as the best compression before it",
        source="abstract",
        published="1.8 x (JPEG-ACT: about 7 x, recalled, fairly sure)",
        certainty=READ,
        shown_in="",
        not_here="JPEG-ACT, which it is compared with, is not in this project",
    ),
    Claim(
        name="time is won back",
        says="Compressing costs about 17 % of the time, which larger batches win back",
        source="figure of throughput against batch size",
        published="about 17 %",
        certainty=UNSURE,
        shown_in="compressed_activations/README.md",
        command="python -m experiments.gpu part=memory archive=memory.tar.gz",
        cost="9 minutes of a GPU; codecs on a CPU say nothing of it",
    ),
]
