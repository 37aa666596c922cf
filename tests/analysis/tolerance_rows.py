"""Rows of a tolerance measurement with known answers."""

from typing import Any

import numpy as np

from pcr_exp.analysis.tolerance import Facts, Measured
from pcr_exp.measuring.tolerance.classifier import Predictions

N = 400
GROUPS = [1, 5, 10]


def measured(wrong: dict[tuple[int, int], int], **changed: Any) -> Measured:
    """Return a measurement of two classes; `wrong` counts wrong images by (train, test) index of groups."""
    labels = np.arange(N) % 2
    classes = np.broadcast_to(labels, (3, 3, N)).copy()
    for (i, j), count in wrong.items():
        classes[i, j, :count] = 1 - labels[:count]
    facts: dict[str, Any] = {
        "dataset": "it",
        "label": "class",
        "headline": "top1",
        "model": "net",
        "image_size": 64,
        "groups": GROUPS,
        "num_classes": 2,
        "num_images": N,
        "num_clusters": N,
        "num_rejected": 0,
        "majority_share": 0.5,
        "margin": 0.02,
        "num_folds": 5,
        "num_resamples": 400,
        "seed": 0,
        "storage": {"name": "unlimited", "bandwidth_mib_per_s": None, "seek_ms": 0.0},
        "images_per_record": 10,
        "num_train_images": 1000,
    }
    return Measured(
        Facts(**(facts | changed)),
        Predictions(classes, np.full(classes.shape, np.nan, dtype=np.float32), np.ones((5, 3))),
        labels,
        np.arange(N),
        np.array([[1000], [4000], [9000]]).repeat(N, axis=1),
        np.full(N, 10_000),
    )
