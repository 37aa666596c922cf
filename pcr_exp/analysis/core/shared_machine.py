"""Which runs had company on their machine, as their manifests tell."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pcr_exp.runs.manifest import Manifest

COMPANY = "other runs went on beside it on the same machine"

Stretch = tuple[datetime, datetime, str, str]
"""Start, end, machine, run id."""


def shared_in_time(manifests: Iterable[Manifest]) -> set[str]:
    """The ids of runs that went on at the same time as another run on the same machine.

    Sessions of one host are taken for the same machine; where no host was kept, those of one CPU's name.
    Sessions that were killed before they could say when are not looked at.
    """
    stretches = sorted(stretch for manifest in manifests for stretch in _stretches(manifest))
    found = set()
    for place, (_, end, machine, run_id) in enumerate(stretches):
        for other_start, _, other_machine, other_id in stretches[place + 1 :]:
            if other_start >= end:
                break
            if other_machine == machine and other_id != run_id:
                found |= {run_id, other_id}
    return found


def _stretches(manifest: Manifest) -> list[Stretch]:
    """Of each session; of a manifest without sessions, from its first start to its last end."""
    sessions = getattr(manifest, "sessions", []) or [manifest]
    return [
        (
            datetime.fromisoformat(session.started_at),
            datetime.fromisoformat(session.finished_at),
            getattr(session, "host", None) or session.cpu,
            manifest.run_id,
        )
        for session in sessions
        if session.finished_at is not None
    ]
