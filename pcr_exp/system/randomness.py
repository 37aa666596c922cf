"""Random streams, named by purpose. None depends on workers, or on how often another stream was used."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """The decision that a stream is for. The numbers are part of every run's identity: never reuse one."""

    RECORD_ORDER = 1
    SAMPLE_ORDER = 2
    AUGMENTATION = 3
    SCAN_GROUP = 4
    ECHO = 5
    QUALITY = 6
    REPLACEMENT = 7
    CACHED = 8
    MIXTURE = 9


def stream(seed: int, purpose: Purpose, *key: int) -> np.random.Generator:
    """Return the generator of (seed, purpose, key): equal in every process, independent of all others."""
    # Entropy must not be negative; two's complement keeps different seeds different.
    return np.random.default_rng(np.random.SeedSequence(seed % 2**64, spawn_key=(purpose, *key)))
