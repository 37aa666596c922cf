"""What 3LC claims (Lim, Andersen, Kaminsky; MLSys 2019, arXiv 1802.07389)."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from experiments.claims.claim import FAIRLY_SURE, READ, Claim, Measure
from experiments.claims.committed import (
    Committed,
    Measured,
    difference_points,
    exactly,
    mean_of,
    three_values,
)
from experiments.claims.verdict import EQUAL, NEAR, around, at_least, half_the_gain
from experiments.threelc.frame import (
    PUBLISHED,
    SPEEDUP_AT_1_GBIT,
    WITHOUT_ZERO_RUNS,
    gradient_frame,
    published,
)
from pcr_exp.analysis.statistics import paired_ratios

FLOAT_BITS = 32
RATIO_AT_S_1 = PUBLISHED["threelc", 1.0].ratio
_OVER_ONE_BIT = PUBLISHED["threelc", 1.0].speedup_at_10_mbit / PUBLISHED["onebit", None].speedup_at_10_mbit
"""What 3LC's speed-up is over that of the next best design."""
_TABLE = "gradients/gradients.csv"
_THREELC = "codec_name == 'threelc' and zero_run"
_LINK = "mode == 'ddp' and bandwidth_mbit_per_s"
_OTHERS = "codec_name not in ['none', 'threelc', 'fp16', 'powersgd']"
"""Designs that the paper compares with."""


def traffic(committed: Committed, file: str) -> list[Measured]:
    """Bits of floats over bits sent of large tensors, push and pull together, with a parameter server."""
    rows = committed.rows(file, f"mode == 'server' and {_THREELC}")
    return [
        as_published(
            mean_of(_s(row), [FLOAT_BITS / bits for bits in three_values(row, "coded_bits")]),
            published(row.to_dict()).ratio,
        )
        for _, row in rows.iterrows()
    ]


def as_published(measured: Measured, number: float) -> Measured:
    """A case that holds if it is at least the ratio that was published of it, in part if half of its gain."""
    case = f"{measured.case}, published {number:g}:"
    return replace(measured, case=case, holds=at_least(number), partly=half_the_gain(number))


def speedups_at_10_mbit(query: str) -> Measure:
    """Times as fast as floats of the same seed at 10 Mbit/s, beside the published number of each design."""

    def measure(committed: Committed, file: str) -> list[Measured]:
        return [
            as_published(
                mean_of(str(row["codec"]).removeprefix("threelc "), three_values(row, "speedup")),
                published(row.to_dict()).speedup_at_10_mbit,
            )
            for _, row in _at(committed, file, 10, query).iterrows()
        ]

    return measure


def speedups_at_1_gbit(committed: Committed, file: str) -> list[Measured]:
    """Times as fast as floats of the same seed at 1 Gbit/s, at every s."""
    rows = _at(committed, file, 1000, _THREELC)
    return [mean_of(_s(row), three_values(row, "speedup")) for _, row in rows.iterrows()]


def speedup_over_the_best_other(committed: Committed, file: str) -> list[Measured]:
    """Images/s of 3LC at s = 1 over those of the same seed of the fastest other design, at 10 Mbit/s."""
    frame = gradient_frame(committed.runs(file.rpartition("/")[0]))
    fastest = _at(committed, file, 10, _OTHERS).sort_values("speedup")["codec"].iloc[-1]
    at_10 = frame.query(f"{_LINK} == 10")
    ours, theirs = at_10.query(f"{_THREELC} and sparsity == 1"), at_10[at_10["codec"] == fastest]
    return [mean_of("", paired_ratios(ours, theirs, "images_per_s"))]


def ratio_without_zero_runs(committed: Committed, file: str) -> list[Measured]:
    """Bits of floats over bits of a message without zero-run encoding, which depend on no data."""
    rows = _at(committed, file, 10, "codec_name == 'threelc' and not zero_run")
    return [exactly(_s(row), FLOAT_BITS / row["coded_bits_mean"]) for _, row in rows.iterrows()]


def gain_by_zero_runs(committed: Committed, file: str) -> list[Measured]:
    """Bits without zero-run encoding over bits with it, s = 1."""
    rows = _at(committed, file, 10, "codec_name == 'threelc' and sparsity == 1")
    # A message without zero-run encoding has the same bits whatever is sent: one run of it is enough.
    (without,) = rows[~rows["zero_run"]]["coded_bits_mean"]
    (row,) = [row for _, row in rows[rows["zero_run"]].iterrows()]
    return [mean_of("", [without / bits for bits in three_values(row, "coded_bits")])]


def accuracy_points(committed: Committed, file: str) -> list[Measured]:
    """Last top-1 less that of floats of the same seed after 256 updates, points."""
    rows = committed.rows(file, f"mode == 'ddp' and updates == 256 and {_THREELC}")
    return [difference_points(_s(row), row) for _, row in rows.iterrows()]


def _at(committed: Committed, file: str, bandwidth: float, query: str) -> pd.DataFrame:
    return committed.rows(file, f"{_LINK} == {bandwidth} and {query}")


def _s(row: pd.Series) -> str:
    return f"s = {row['sparsity']:.2f}"


CLAIMS = [
    Claim(
        name="39 to 107 times less traffic",
        says="Gradients and model changes take 39 to 107 times fewer bytes",
        source="abstract; table of traffic (s = 1.00, 1.50, 1.75)",
        published="39 to 107 x",
        certainty=READ,
        ours="bits of floats over bits sent of large tensors, push and pull, 256 updates",
        unit="x",
        file=_TABLE,
        measure=traffic,
        shown_in="gradients/gradient_bits.png",
    ),
    Claim(
        name="16 to 23 times as fast",
        says="At 10 Mbit/s training is 16 to 23 times as fast as with 32-bit floats",
        source="abstract; table 1",
        published="16 to 23 x",
        certainty=READ,
        ours="times as fast as floats of the same seed at 10 Mbit/s, two processes",
        unit="x",
        file=_TABLE,
        measure=speedups_at_10_mbit(_THREELC),
        shown_in="gradients/gradient_speedup.png",
    ),
    Claim(
        name="faster at 1 Gbit/s",
        says="At 1 Gbit/s training is still about 1.5 times as fast",
        source="figure at 1 Gbps",
        published="about 1.5 x",
        certainty=FAIRLY_SURE,
        ours="times as fast as floats of the same seed at 1 Gbit/s, two processes",
        unit="x",
        file=_TABLE,
        measure=speedups_at_1_gbit,
        holds=at_least(SPEEDUP_AT_1_GBIT),
        partly=half_the_gain(SPEEDUP_AT_1_GBIT),
        shown_in="gradients/gradient_speedup.png",
    ),
    Claim(
        name="the fastest design",
        says="At 10 Mbit/s it is the fastest of the designs, already at s = 1.00",
        source="table 1",
        published="15.9 x against 14.6 x of one bit, the next best",
        certainty=FAIRLY_SURE,
        ours="images/s over those of the same seed of the fastest other design of the paper, 10 Mbit/s",
        unit="x",
        file=_TABLE,
        measure=speedup_over_the_best_other,
        holds=at_least(_OVER_ONE_BIT),
        partly=half_the_gain(_OVER_ONE_BIT),
        shown_in="gradients/gradient_speedup.png",
    ),
    Claim(
        name="the other designs",
        says="Other designs are 3.25 to 14.6 times as fast at 10 Mbit/s",
        source="table 1",
        published="int8 3.62, 25 % 3.25, 5 % 8.98, stochastic 12.3, one bit 14.6 x",
        certainty=FAIRLY_SURE,
        ours="times as fast as floats of the same seed at 10 Mbit/s",
        unit="x",
        file=_TABLE,
        measure=speedups_at_10_mbit(_OTHERS),
        shown_in="gradients/gradient_speedup.png",
    ),
    Claim(
        name="20 times by three values",
        says="Three values, five in a byte, are 20 times smaller than floats",
        source="quartic encoding",
        published="1.6 bits a value, 20 x",
        certainty=FAIRLY_SURE,
        ours="bits of floats over bits sent without zero-run encoding, at every s",
        unit="x",
        file=_TABLE,
        measure=ratio_without_zero_runs,
        holds=around(WITHOUT_ZERO_RUNS.ratio, EQUAL),
        partly=around(WITHOUT_ZERO_RUNS.ratio, NEAR),
        shown_in="gradients/gradient_traffic.png",
    ),
    Claim(
        name="zero runs halve the rest",
        says="Encoding runs of zeros makes messages 1.97 times smaller again at s = 1.00",
        source="table of traffic",
        published="39.4 x against 20.0 x",
        certainty=FAIRLY_SURE,
        ours="bits without zero-run encoding over bits with it, gradients of 32 updates",
        unit="x",
        file=_TABLE,
        measure=gain_by_zero_runs,
        holds=at_least(RATIO_AT_S_1 / WITHOUT_ZERO_RUNS.ratio),
        partly=half_the_gain(RATIO_AT_S_1 / WITHOUT_ZERO_RUNS.ratio),
        shown_in="gradients/gradient_traffic.png",
    ),
    Claim(
        name="no accuracy is lost",
        says="Accuracy is that of floats: 93.1 to 93.5 % against 93.37 %",
        source="table 1",
        published="-0.05, -0.08, +0.14, -0.27 points at s = 1.00, 1.50, 1.75, 1.90",
        certainty=FAIRLY_SURE,
        ours="last top-1 less that of floats of the same seed, 256 updates",
        unit="points",
        file=_TABLE,
        measure=accuracy_points,
        holds=at_least(-1),
        partly=at_least(-2),
        is_accuracy=True,
        shown_in="gradients/README.md",
        command=(
            "torchrun --standalone --nproc-per-node 2 -m experiments.train -m experiment=gradient_speedup "
            "dataset=imagenet dataset.root=../shared/data/imagenet network=unlimited training.epochs=40 "
            "gradients=none,threelc seed=0,1,2"
        ),
        cost="6 trainings of some 10 minutes on two cores, and 3 more for each other s",
    ),
    Claim(
        name="two local steps",
        says="Sending every second update alone is 1.92 times as fast, and loses 0.34 points",
        source="table 1",
        published="1.92 x, 93.03 %",
        certainty=FAIRLY_SURE,
        is_accuracy=True,
        shown_in="",
        not_here="this project has no local steps: every update is sent",
    ),
]
