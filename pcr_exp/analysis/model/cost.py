"""What it costs to read a dataset from storage whose owner bills bytes and requests."""

from __future__ import annotations

import math

GB = 10**9
"""Bytes that `cost_per_gb` is for."""


def epoch_traffic(num_images: int, images_per_record: float, image_bytes: float) -> tuple[float, int]:
    """Return the bytes and the requests of an epoch that is read from storage whole.

    Each record is one request, whatever the scan group: it reads the record's beginning.

    Args:
        num_images: Images of the epoch.
        images_per_record: Images that one request reads.
        image_bytes: Mean bytes of an image up to the scan group.
    """
    return num_images * image_bytes, math.ceil(num_images / images_per_record)


def reading_dollars(
    num_bytes: float, num_requests: float, *, cost_per_gb: float, cost_per_1000_requests: float
) -> float:
    """Return the dollars of so many bytes and requests; `cost_per_gb` is for 10^9 bytes."""
    return num_bytes / GB * cost_per_gb + num_requests / 1000 * cost_per_1000_requests
