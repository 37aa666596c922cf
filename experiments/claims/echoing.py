"""What Data Echoing claims (Choi, Passos, Shallue, Dahl; arXiv 1907.05550 v3)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments.claims.claim import READ, SUMMARY, Claim
from experiments.claims.committed import Committed, Measured, mean_of, three_values
from experiments.claims.verdict import EQUAL, NEAR, around, at_most
from experiments.echoing.frame import echo_frame
from pcr_exp.analysis.statistics import by_repeat

_TRAIN = "python -m experiments.train -m"
_LONGER = "dataset.root=../shared/data/ham10000 training.epochs=140"
_COST = "trainings of 5 minutes on two cores, 140,000 fresh images each instead of 8,000"


def by_factor(committed: Committed, file: str) -> dict[float, pd.DataFrame]:
    """Runs of a folder by echo factor, a row of `echo_frame` per run, seed by seed."""
    frame = echo_frame(committed.runs(file.rpartition("/")[0]))
    return {factor: by_repeat(frame[frame["factor"] == factor]) for factor in sorted(set(frame["factor"]))}


def time_over_model(committed: Committed, file: str) -> list[Measured]:
    """Seconds per fresh sample over max(t_up, e t_down) of the same run, at every echo factor e."""
    found = []
    for factor, runs in by_factor(committed, file).items():
        model_s = np.maximum(runs["upstream_s_per_sample"], factor * runs["downstream_s_per_sample"])
        found.append(mean_of(f"e = {factor:g}", runs["s_per_fresh"] / model_s))
    return found


def cost_of_free_repeats(committed: Committed, file: str) -> list[Measured]:
    """Seconds per fresh sample at an echo factor below R, over those of the same seed without echo."""
    runs = by_factor(committed, file)
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
    row = committed.row(file, "processes == 2 and combination == 'echo 2x'")
    return [mean_of("", three_values(row, "speedup"))]


CLAIMS = [
    Claim(
        name="3.25 times as fast",
        says="Echoing before augmentation reaches the target 3.25 times as soon, e = 5, R about 6",
        source="abstract (3.25 x); figure 4",
        published="3.25 x",
        certainty=f"{READ} (e = 5: {SUMMARY})",
        is_accuracy=True,
        shown_in="echo_factor/README.md",
        command=f"{_TRAIN} experiment=echo_factor {_LONGER} echo.factor=1,2,5 storage.bandwidth_mib_per_s=2",
        cost="9 trainings of up to 16 minutes with the machine to themselves, for each rate that is tried",
    ),
    Claim(
        name="cost model",
        says="A fresh sample and its repeats take the longer of reading it and of training on them",
        source="cost model",
        published="max(t_up, e t_down)",
        certainty=SUMMARY,
        ours="seconds per fresh sample over max(t_up, e t_down), from storage at 4 MiB/s",
        file="echo_factor/echo.csv",
        measure=time_over_model,
        holds=around(1, EQUAL),
        partly=around(1, NEAR),
        shown_in="echo_factor/echo_time.png",
    ),
    Claim(
        name="repeats are free",
        says="Up to e = R repeats cost no time",
        source="cost model",
        published="free for e <= R",
        certainty=SUMMARY,
        ours="seconds per fresh sample over those without echo",
        unit="x",
        file="echo_factor/echo.csv",
        measure=cost_of_free_repeats,
        holds=at_most(1 + EQUAL),
        partly=at_most(1 + NEAR),
        shown_in="echo_factor/echo_time.png",
    ),
    Claim(
        name="only where reading limits",
        says="Where reading is not the limit, echoing gains nothing",
        source="limits",
        published="no gain",
        certainty=SUMMARY,
        ours="times as fast at e = 2, as many updates, where sending gradients is the limit",
        unit="x",
        file="combined/combined.csv",
        measure=speedup_where_the_network_limits,
        holds=at_most(1 + EQUAL),
        partly=at_most(1 + NEAR),
        shown_in="combined/README.md",
    ),
    Claim(
        name="fewer fresh samples",
        says="At e = 2 every way of echoing but one needs fewer fresh samples to the target",
        source="figure 3",
        published="fewer in all cases but batch echoing of ResNet-50, which is level",
        certainty=SUMMARY,
        is_accuracy=True,
        shown_in="archive/README.md",
        command=f"{_TRAIN} experiment=echo_variants {_LONGER} training.learning_rate=0.01,0.02,0.04",
        cost=f"63 {_COST}",
    ),
    Claim(
        name="before augmentation is best",
        says="Echoing before augmentation is at least as good as after it, samples as batches",
        source="figure 3",
        published="before >= after; samples >= batches that are not shuffled",
        certainty=SUMMARY,
        is_accuracy=True,
        shown_in="archive/README.md",
        command=f"{_TRAIN} experiment=echo_variants {_LONGER} training.learning_rate=0.01,0.02,0.04",
        cost=f"the same 63 {_COST}",
    ),
    Claim(
        name="more shuffling is better",
        says="The larger the shuffle buffer after the echo, the fewer fresh samples are needed",
        source="figure 7",
        published="more shuffling is better",
        certainty=SUMMARY,
        is_accuracy=True,
        shown_in="archive/README.md",
        command=f"{_TRAIN} experiment=echo_buffer {_LONGER}",
        cost=f"24 {_COST}, for each rate that is tried",
    ),
    Claim(
        name="larger batches",
        says="Larger batches help batch echoing",
        source="figure 6",
        published="help batch echoing, can hurt example echoing",
        certainty=SUMMARY,
        is_accuracy=True,
        shown_in="archive/README.md",
        command=f"{_TRAIN} experiment=echo_batch_size {_LONGER}",
        cost=f"27 {_COST}, for each rate that is tried",
    ),
    Claim(
        name="no quality is lost",
        says="Echoing loses no final quality",
        source="figure 8",
        published="no loss",
        certainty=SUMMARY,
        is_accuracy=True,
        shown_in="archive/README.md",
        command=f"{_TRAIN} experiment=echo_variants {_LONGER} training.learning_rate=0.01,0.02,0.04",
        cost=f"the same 63 {_COST}",
    ),
    Claim(
        name="up to e = 16",
        says="On a language model e between 4 and 8 is best, and e = 16 still beats none",
        source="figure 5 (LM1B)",
        published="best e between 4 and 8",
        certainty=SUMMARY,
        shown_in="",
        not_here="it is of a Transformer on text, and this project reads images",
    ),
]
