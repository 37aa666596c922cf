"""How many images a second a loader can deliver: the PCR paper's model, and what follows from it.

    X(g) = min(compute, decode(g), W / E[s_g])

W is storage bandwidth and s_g the bytes of an image up to scan group g (Kuchnik et al., PVLDB 14(11)).
A disk's one head seeks before each read, and transfers nothing meanwhile: an image then takes its share of a
seek besides, and W / E[s_g] becomes 1 / (E[s_g] / W + seek / images per read). Storage that charges per
request sets two more limits: requests/s x images per request, and what Little's law gives for the reads in
flight. Pure functions of numbers; infinity is no limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping


def bandwidth_images_per_s(
    bandwidth_bytes_per_s: float, image_bytes: float, *, seek_s_per_image: float = 0.0
) -> float:
    """W / E[s_g], or 1 / (E[s_g] / W + seek): `seek_s_per_image` is a read's seek over its images."""
    free_images_per_s = bandwidth_bytes_per_s / image_bytes
    return 1 / (1 / free_images_per_s + seek_s_per_image) if seek_s_per_image else free_images_per_s


def in_flight_images_per_s(
    reads_in_flight: float,
    images_per_read: float,
    *,
    latency_s: float,
    read_bytes: float,
    bandwidth_bytes_per_s: float,
    seek_s: float = 0.0,
) -> float:
    """What so many reads in flight can deliver, alone on the storage: Little's law, X = L / T.

    T is a read's own time: latency, its seek, and its bytes at full bandwidth.
    """
    read_s = latency_s + seek_s + read_bytes / bandwidth_bytes_per_s
    return math.inf if read_s == 0 else reads_in_flight * images_per_read / read_s


def reads_in_flight(reads_per_s: float, *, latency_s: float, transfer_s: float) -> float:
    """Little's law, L = X T: reads that are under way at a time, where so many a second come back.

    `transfer_s` is all that a read has the storage to itself for: its bytes, and its seek where there is one.
    Below as many, latency is the limit and not bandwidth.
    """
    return reads_per_s * (latency_s + transfer_s)


def images_per_s(limits: Mapping[str, float]) -> tuple[float, str]:
    """The smallest limit (images/s) and its name; of equal ones the first."""
    name = min(limits, key=lambda limit: limits[limit])
    return limits[name], name


def roofline_images_per_s(
    image_bytes: float,
    *,
    bandwidth_bytes_per_s: float,
    compute_images_per_s: float,
    seek_s_per_image: float = 0.0,
) -> float:
    """min(compute, W / E[s]): flat up to the knee, and falling as 1 / E[s] beyond. Seeks lower the slope."""
    storage = bandwidth_images_per_s(bandwidth_bytes_per_s, image_bytes, seek_s_per_image=seek_s_per_image)
    return min(compute_images_per_s, storage)


def knee_image_bytes(
    *, bandwidth_bytes_per_s: float, compute_images_per_s: float, seek_s_per_image: float = 0.0
) -> float:
    """E[s_g] = W (1 / X_c - seek): the largest mean image at which storage does not hold compute up.

    0 or less where seeks alone do: then there is none.
    """
    return bandwidth_bytes_per_s / compute_images_per_s - bandwidth_bytes_per_s * seek_s_per_image


def epochs_per_h(num_images: float, images_per_s: float) -> float:
    """Epochs of `num_images` in an hour."""
    return 3600 * images_per_s / num_images


def fill_s(window_images: float, limits: Mapping[str, float]) -> float:
    """Seconds that a run takes beyond images / X, because its stages begin and end one after another.

    Images pass the stages (`limits`, images/s) in windows. A pipeline takes every stage's time for one window
    and the slowest stage's for each other one: the first is read before any is trained, the last is trained
    after all are read.
    """
    window_s = [window_images / limit for limit in limits.values()]
    return sum(window_s) - max(window_s)


def time_to_accuracy_s(
    epochs_to_accuracy: float, num_images: float, images_per_s: float, *, start_s: float = 0.0
) -> float:
    """Seconds until so many epochs of `num_images` are trained; `start_s` is what `fill_s` gives."""
    return start_s + epochs_to_accuracy * num_images / images_per_s
