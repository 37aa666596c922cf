"""Between two epochs: a scan policy's probe, on its own clock, and the row of what it decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

from pcr_exp.policies.policy import ScanPolicy
from pcr_exp.policies.probe import Probe
from pcr_exp.training.progress import Progress
from pcr_exp.training.report import Reporter, Row

RunProbe = Callable[[Probe], Mapping[int, float]]
"""Finds out what a policy wants to know, a score for each candidate, and leaves no trace in the model."""


def decisions(
    policy: ScanPolicy,
    probe: RunProbe,
    progress: Progress,
    reporter: Reporter,
    *,
    epochs: int,
    probing: Callable[[], AbstractContextManager[None]],
    bytes_read: Callable[[], int],
) -> Iterator[Row]:
    """Do the probe that the policy wants at this point, if any, and yield a row if it decided something.

    Args:
        epochs: Of the whole run: after the last there is nothing to decide.
        probing: Entered around a probe; within, the loader stands still and the probe's clock runs.
        bytes_read: What storage has delivered; what a probe adds to it is counted as its own.
    """
    between_epochs = progress.batch == 0 and progress.epoch < epochs
    wanted = policy.wanted_probe(progress.epoch) if between_epochs else None
    if wanted is not None:
        with probing():
            bytes_before = bytes_read()
            scores = probe(wanted)
            progress.probe_bytes += bytes_read() - bytes_before
        policy.decide(scores)
    decision = policy.take_decision()
    if decision is not None and progress.epoch < epochs:
        yield reporter.policy_row(decision)
