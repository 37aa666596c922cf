"""Encode records as tasks of a Ray cluster: `records.engine=ray`.

A task makes one record, from its images to its finished file. Its images and output do not depend on the
node, and files are written atomically. A task whose node died is therefore restarted on another, with a
byte-identical result. All nodes must see the images and the records' folder.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from pcr_exp.system.ray_cluster import connect_to_ray

Outcome = Any
"""The result of `make`: a marker or an error."""


def make_on_ray(
    make: Callable[[int, Sequence[Any]], Outcome],
    records: Mapping[int, Sequence[Any]],
    address: str | None,
) -> Iterator[tuple[int, Outcome]]:
    """Call `make(number, tasks)` for each record on the cluster; yield (number, outcome) in the given order.

    As many tasks run as the cluster has CPUs, and as many again are queued.

    Args:
        make: Must be picklable, as must its results.
        records: Record number -> tasks for `make`.
        address: As `records.ray_address`.

    Raises:
        ConfigError: Ray is not installed, or there is no cluster at the address.
    """
    ray = connect_to_ray(address, "records.ray_address")
    task = ray.remote(num_cpus=1, max_retries=-1)(_call)
    ahead = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    remaining, folder = iter(records.items()), str(Path.cwd())
    pending: deque[tuple[int, Any]] = deque()

    def submit(count: int) -> None:
        pending.extend(
            (number, task.remote(make, number, given, folder)) for number, given in islice(remaining, count)
        )

    submit(ahead)
    try:
        while pending:
            number, reference = pending.popleft()
            outcome = ray.get(reference)
            submit(1)
            yield number, outcome
    finally:
        for _, reference in pending:
            ray.cancel(reference, force=True)


def _call(
    make: Callable[[int, Sequence[Any]], Outcome], number: int, given: Sequence[Any], folder: str
) -> Outcome:
    """Call `make`, as Ray accepts functions, but not functools.partial objects.

    Relative paths begin at `folder`, as they do where the command was started; a node's processes begin
    elsewhere.
    """
    with suppress(OSError):  # a node may lack it, and needs it only if paths are relative
        os.chdir(folder)
    return make(number, given)
