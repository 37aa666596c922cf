"""Echoing before augmentation: an epoch's order in which samples come several times.

The echo stage is nothing but this order. Repeats are places in it like all others, so they are decoded afresh
with random numbers of their own, at any number of workers; and the shuffle buffer is no place: a record stays
in memory until its last use, or what is left of it (`held`).
"""

from __future__ import annotations

from pcr_exp.loading.echo.repeats import Echo
from pcr_exp.loading.order import Uses


def echoed(fresh: Uses, echo: Echo) -> Uses:
    """What a slot uses behind the echo stage: `echo` gives uses of the positions of `fresh`."""
    return Uses(fresh.records[echo.items], fresh.samples[echo.items], echo.repeats)
