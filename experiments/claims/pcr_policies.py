"""What PCR claims of policies that choose a scan group while training (arXiv 1911.00472, autotuning)."""

from __future__ import annotations

from experiments.claims.claim import FAIRLY_SURE, READ, Claim, Measure
from experiments.claims.committed import Committed, Measured, difference_points
from experiments.claims.pcr_accuracy import FINE_TUNE, MARGIN_POINTS, TARGET_POINTS
from experiments.claims.verdict import at_least

_CHOSE = ("cosine", "mssim", "plateau")
"""Policies that are in results/buying_back."""


def difference_of_policy(scan: str) -> Measure:
    """Final score of runs that followed a policy less that of baseline runs of the same seed, points.

    Its settings stand behind its name.
    """

    def measure(committed: Committed, file: str) -> list[Measured]:
        return [difference_points("", committed.row(file, f"scan.str.startswith('{scan}')"))]

    return measure


def _policy(name: str, says: str, published: str, certainty: str, scan: str) -> Claim:
    return Claim(
        name=name,
        says=says,
        source="autotuning",
        published=published,
        certainty=certainty,
        ours="score of cars by model, fine-tuned by the policy, less at baseline, same seed, tested in full",
        unit="points",
        file="buying_back/cars/summary.csv" if scan in _CHOSE else "",
        measure=difference_of_policy(scan) if scan in _CHOSE else None,
        holds=at_least(MARGIN_POINTS),
        partly=at_least(TARGET_POINTS),
        shown_in="buying_back/README.md" if scan in _CHOSE else "archive/README.md",
        is_accuracy=True,
        command=(
            f"{FINE_TUNE} dataset=cars dataset.root=../shared/data/cars training.epochs=24 "
            f"training.eval_every_epochs=4 scan={scan}"
        ),
        cost="3 trainings of 15 minutes on one core, beside the static groups of the same experiment",
    )


CLAIMS = [
    _policy(
        "MS-SSIM chooses",
        "The smallest group whose images have a mean MS-SSIM of 0.95 keeps the accuracy",
        "threshold 0.95",
        FAIRLY_SURE,
        "mssim",
    ),
    _policy(
        "gradients choose",
        "The smallest group whose gradient has a cosine above 0.8 with the full one keeps the accuracy",
        "cosine above 0.8, from epoch 5",
        READ,
        "cosine",
    ),
    _policy(
        "a plateau chooses",
        "Trying groups when the loss stands still, and taking the cheapest of the good, keeps the accuracy",
        "trial training with rollback",
        FAIRLY_SURE,
        "plateau",
    ),
]
