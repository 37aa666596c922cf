"""What is known of runs beyond their own manifests: `notes.json` beside them, and which had company.

`notes.json` has three lists, each of which may be missing:

* `shared_machine`: {"runs": pattern of run ids such as "cars-*", "why": words}: runs that had company;
* `majority_share`: {"val_fingerprint", "label", "majority_share": 0..1}: for manifests without one;
* `quality`: what manifests of today hold as `quality`, for those that do not, with what decides it:
  {"train_fingerprint", "image_size", "crop_scale", "decode", "antialias", "group", "ms_ssim_mean",
  "ms_ssim_std", "num_images", "num_scales", "bytes_per_image"}.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pcr_exp.errors import RunError
from pcr_exp.runs.manifest import Manifest

NOTES_FILE = "notes.json"
_KEYS: dict[str, tuple[str, ...]] = {
    "shared_machine": ("runs", "why"),
    "majority_share": ("val_fingerprint", "label", "majority_share"),
    "quality": (
        *("train_fingerprint", "image_size", "crop_scale", "decode", "antialias", "group"),
        *("ms_ssim_mean", "ms_ssim_std", "num_images", "num_scales", "bytes_per_image"),
    ),
}
COMPANY = "other runs went on beside it on the same machine"
Stretch = tuple[datetime, datetime, str, str]
"""Start, end, machine, run id."""


@dataclass(frozen=True, slots=True)
class RunNotes:
    """The lists of `notes.json`; empty without one."""

    shared_machine: list[dict[str, Any]] = field(default_factory=list)
    majority_share: list[dict[str, Any]] = field(default_factory=list)
    quality: list[dict[str, Any]] = field(default_factory=list)

    def why_shared(self, run_id: str) -> str:
        """Words for a footnote; empty if nothing is noted."""
        return next((note["why"] for note in self.shared_machine if fnmatch(run_id, note["runs"])), "")

    def majority_of(self, manifest: Manifest) -> float | None:
        """The noted share of the most frequent class among a run's validation images."""
        wanted = (manifest.val_fingerprint, manifest.label)
        for note in self.majority_share:
            if (note["val_fingerprint"], note["label"]) == wanted:
                return float(note["majority_share"])
        return None

    def quality_of(self, manifest: Manifest, config: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The noted measurements of what a run trained on, as its own manifest would hold them."""
        decides = {
            "train_fingerprint": manifest.train_fingerprint,
            "image_size": config["training"]["image_size"],
            "crop_scale": list(config["dataset"]["augment"]["crop_scale"]),
        }
        return [note for note in self.quality if all(note[key] == value for key, value in decides.items())]


def read_notes(runs_root: Path) -> RunNotes:
    """Read the notes beside runs; empty ones if there is no such file.

    Raises:
        RunError: it is damaged, or an entry lacks a key or has one too many.
    """
    path = runs_root / NOTES_FILE
    if not path.exists():
        return RunNotes()
    try:
        lists = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(
            f"{path} is damaged: {error}. Mend it, or delete it: it notes what is known."
        ) from error
    if not isinstance(lists, dict) or not lists.keys() <= _KEYS.keys():
        found = sorted(lists) if isinstance(lists, dict) else lists
        raise RunError(f"{path}: keys {found}; wanted some of {', '.join(_KEYS)}.")
    for name, entries in lists.items():
        for entry in entries:
            if not isinstance(entry, dict) or set(entry) != set(_KEYS[name]):
                raise RunError(f"{path}: {name} has the entry {entry}; wanted keys {', '.join(_KEYS[name])}.")
    return RunNotes(**lists)


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
    """One for each session; a manifest without sessions has one, from its first start to its last end."""
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
