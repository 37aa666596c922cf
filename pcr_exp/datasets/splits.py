"""Which images are trained on, tuned by and reported on. Everything here is a pure function."""

from __future__ import annotations

import hashlib
import math

import numpy as np

SPLITS = ("train", "tune", "val")
"""Trained on; looked at by scan policies, probes and tuning; reported."""


def split_of(group: str, *, val_fraction: float, tune_fraction: float, seed: int) -> str:
    """The split of an image, or of all images of a group, by its name and nothing else.

    So a new image moves no other one. `val_fraction` of many groups are val, and `tune_fraction` of the
    others are tune; each share is decided by bits of its own, so that changing one moves nothing across
    the other's border.
    """
    digest = hashlib.sha256(f"{seed}:{group}".encode(errors="surrogateescape")).digest()
    if _share(digest[:8]) < val_fraction:
        return "val"
    return "tune" if _share(digest[8:16]) < tune_fraction else "train"


def place(sample_id: str) -> bytes:
    """What a split is sorted by: mixed as if shuffled, the same everywhere, and each image by its name alone.

    So the first images of a split are a random subset, and a new image leaves the others in their order.
    """
    return hashlib.sha256(sample_id.encode(errors="surrogateescape")).digest()


def holdout(num: int, val_fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices (train, val) of 0..num-1, each in drawn order; one more image moves others.

    Draws what scikit-learn's `train_test_split(test_size=val_fraction, random_state=seed)` draws, which
    is how the PCR release cuts HAM10000 and CelebA-HQ: of one permutation by numpy's legacy generator,
    the first ceil(val_fraction * num) are held out and the rest trained on.
    """
    order = np.random.RandomState(seed).permutation(num).tolist()
    num_val = math.ceil(val_fraction * num)
    return order[num_val:], order[:num_val]


def _share(bits: bytes) -> float:
    return int.from_bytes(bits, "big") / 2 ** (8 * len(bits))
