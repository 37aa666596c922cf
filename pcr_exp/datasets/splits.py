"""Cutting one list of pictures into train and val, reproducibly. Everything here is a pure function."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def holdout(num: int, val_fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices (train, val) of 0..num-1, each in drawn order.

    Draws what scikit-learn's `train_test_split(test_size=val_fraction, random_state=seed)` draws, which
    is how the PCR release cuts HAM10000 and CelebA-HQ: of one permutation by numpy's legacy generator,
    the first ceil(val_fraction * num) are held out and the rest trained on.
    """
    order = np.random.RandomState(seed).permutation(num).tolist()
    num_val = math.ceil(val_fraction * num)
    return order[num_val:], order[:num_val]


def stratified_holdout(
    class_indices: Sequence[int], val_fraction: float, seed: int
) -> tuple[list[int], list[int]]:
    """Indices (train, val), both sorted, with `val_fraction` of every class held out.

    A class of two or more pictures has at least one on each side; a class of one is trained on.
    """
    by_class: dict[int, list[int]] = {}
    for index, class_index in enumerate(class_indices):
        by_class.setdefault(class_index, []).append(index)
    train: list[int] = []
    val: list[int] = []
    for class_index, members in sorted(by_class.items()):
        order = np.random.default_rng([seed, class_index]).permutation(members).tolist()
        num_val = min(max(1, round(val_fraction * len(members))), len(members) - 1)
        val += order[:num_val]
        train += order[num_val:]
    return sorted(train), sorted(val)
