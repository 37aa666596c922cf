"""Figure captions: subject, data, task and model; n, hardware and storage.

All facts come from the files of runs, or from the JSON file of a measurement. `figure.save_figure` requires a
caption.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from pcr_exp.analysis.statistics import name_of_repeats
from pcr_exp.analysis.tables import span, task_title
from pcr_exp.config.describe import storage_label

NOT_TIMED = "no storage: nothing was timed"
"""Storage in the caption of a figure whose values do not depend on it."""
MAX_NAMED = 3
"""Most tasks that a title names; above that, the title counts them and the panels name them."""
_UNLIMITED = "unlimited"
NOT_RECORDED = "hardware not recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """The title above a figure's panels, and the facts below them."""

    shows: str
    """The subject, such as `Accuracy over time`."""
    of: tuple[str, ...]
    """Data, label, model and input size of each task (`describe_task`); without a task, data and size."""
    n: str
    """The number of measurements, such as `n = 3 seeds`."""
    hardware: str
    storage: str

    def __post_init__(self) -> None:
        """Reject a caption that leaves something out.

        Raises:
            ValueError: a field, or an entry of `of`, is empty.
        """
        for field in fields(self):
            if not getattr(self, field.name) or not all(self.of):
                raise ValueError(
                    f"the caption of a figure lacks {field.name}: {self}. Fill it in, or state why there is "
                    "none."
                )

    @property
    def title(self) -> str:
        """The subject, with the tasks below it."""
        named = "\n".join(self.of) if len(self.of) <= MAX_NAMED else f"{len(self.of)} tasks"
        return f"{self.shows}\n{named}"

    @property
    def facts(self) -> str:
        """The footer: n, storage and hardware."""
        return f"{self.n}; {self.storage}; {self.hardware}"


def describe_task(dataset: str, label: str, model: str, image_px: int) -> str:
    """Return dataset, label, model and crop side as `cars · make · resnet18 · 128 px`."""
    return f"{task_title(dataset, label, model)} · {image_px} px"


def of_runs(frame: pd.DataFrame, shows: str, rows: pd.DataFrame | None = None) -> Caption:
    """Return the caption of a figure of runs.

    Args:
        frame: `frame.run_frame` of one run or more.
        shows: The subject of the figure.
        rows: The drawn rows. If they have a column `run_id`, the caption covers these runs only.
    """
    if rows is not None and "run_id" in rows:
        frame = frame[frame["run_id"].isin(rows["run_id"])]
    tasks = frame[["dataset", "label", "model", "image_px"]].drop_duplicates()
    return Caption(
        shows=shows,
        of=tuple(describe_task(*task) for task in tasks.itertuples(index=False)),
        n=f"n = {describe_repeats(frame)}",
        hardware=_each(map(_one_core, frame["hardware"])),
        storage=_places(frame),
    )


def describe_hardware(measured: Mapping[str, Any]) -> str:
    """Return the processor of a measurement from the contents of its JSON file, or NOT_RECORDED."""
    processor = measured.get("gpu") or measured.get("cpu") or measured.get("hardware")
    if not processor:
        return NOT_RECORDED
    cores = measured.get("num_cores")
    return _one_core(f"{processor}, {cores} cores") if cores else str(processor)


def _one_core(hardware: str) -> str:
    return re.sub(r"\b1 cores", "1 core", hardware)


def describe_storage(config: Mapping[str, Any]) -> str:
    """Return `storage hdd (150 MiB/s, 8 ms seek)` for a configuration with a group `storage`."""
    return _describe_storage_label(storage_label(config["storage"]))


def _describe_storage_label(label: str) -> str:
    return "storage without a limit in MiB/s" if label == _UNLIMITED else f"storage {label}"


def _places(frame: pd.DataFrame) -> str:
    """Describe every storage and, for runs with several processes, every network between them."""
    networks = _each(frame.loc[frame["world_size"] > 1, "network"])
    return _each(map(_describe_storage_label, frame["storage"])) + (
        f"; network {networks}" if networks else ""
    )


def describe_repeats(frame: pd.DataFrame) -> str:
    """Return how many repeats (`name_of_repeats`) each setting and scan level has, for `frame.run_frame`."""
    repeats = frame[["setting", "scan", "seed", "fold"]].drop_duplicates()
    counts = repeats.value_counts(["setting", "scan"])
    word = name_of_repeats(frame)
    each = " each" if len(counts) > 1 else ""
    return f"{span(counts)} {word}{'' if counts.max() == 1 else 's'}{each}"


def _each(words: Iterable[str]) -> str:
    """Join the distinct words in their order."""
    return " / ".join(dict.fromkeys(words))
