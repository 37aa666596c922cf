"""One HTML page that shows what a model would see; the file loads nothing from the network.

All values of a measurement are computed here, by the functions that make its tables. The script of the page
(`explore.js`) chooses what is shown. It recomputes the throughput model as sliders move, with the formulas of
`plan`, line by line.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from pcr_exp.analysis.tolerance import WORDS, Facts, Measured, answers_table, bytes_table, matrix_of
from pcr_exp.analysis.tolerance_page import describe_tolerance
from pcr_exp.config.crops import CropSettings
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.measuring import DEPLOYMENTS
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.explore import Explored, SeenImage, in_turn
from pcr_exp.measuring.tolerance.answer import answer
from pcr_exp.places import CONFIGS
from pcr_exp.training.task import primary_metric_named

MAX_PAGE_BYTES = 15_000_000
SHOWN_MISTAKES = 8
"""Images per group and deployment, the worst first."""
_MOST_MISTAKES = 60
"""Most mistakes in a page, over all groups: each takes as much time as an image of the grid."""
_TEMPLATE, _SCRIPT = (Path(__file__).with_name(f"explore.{ending}") for ending in ("html.jinja", "js"))
_START = StorageConfig(name="", bandwidth_mib_per_s=100.0, latency_ms=10.0)
_START_IMAGES_PER_S = 1000.0
MARK = "pcr-exp explore"
"""The page's generator, which identifies a page of ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochFacts:
    """The images of an epoch, as in `plan.data`."""

    num_images: int
    images_per_record: float
    image_bytes: Sequence[float]
    """Mean bytes up to each group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """The content of a page."""

    title: str
    """The dataset, and its split if it is known."""
    groups: Sequence[int]
    classes: Sequence[str]
    explored: Explored
    gallery: Sequence[str]
    """Ids of the images in the grid; others are shown only as mistakes."""
    crops: CropSettings
    epoch: EpochFacts
    task: Measured | None = None
    unread: Mapping[str, str] = field(default_factory=dict)
    """Records that could not be read, and why."""
    max_bytes: int = MAX_PAGE_BYTES
    storage: StorageConfig | None = None
    """Initial slider positions; for None, or without a bandwidth, 100 MiB/s and 10 ms."""


def explore_page(shown: Shown) -> str:
    """Return the page as HTML. All of its numbers are in the JSON that it contains."""
    task = None if shown.task is None else _Task.of(shown.task)
    data = json.dumps(_data(shown, task), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    script = _SCRIPT.read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return page.render(
        mark=MARK,
        title=shown.title,
        shown=shown,
        num_shown=sum(image.id in set(shown.gallery) for image in shown.explored.seen),
        task=task,
        words=WORDS,
        left_out={**shown.unread, **shown.explored.left_out},
        data=Markup(data),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _data(shown: Shown, task: _Task | None) -> dict[str, Any]:
    places = {image.id: place for place, image in enumerate(shown.explored.seen)}
    in_grid = [places[name] for name in shown.gallery if name in places]
    by_class: dict[int, list[int]] = {}
    for place in in_grid:
        by_class.setdefault(shown.explored.seen[place].label, []).append(place)
    return {
        "groups": list(shown.groups),
        "cropPx": shown.crops.eval_px,
        "images": [_image(image) for image in shown.explored.seen],
        "classes": [{"name": shown.classes[label], "images": by_class[label]} for label in sorted(by_class)],
        "epoch": {
            "numImages": shown.epoch.num_images,
            "imagesPerRecord": shown.epoch.images_per_record,
            "imageBytes": list(shown.epoch.image_bytes),
            "decodeImagesPerS": shown.explored.decode_images_per_s(),
        },
        "storages": {name: _storage(storage) for name, storage in presets().items()},
        "start": _start(shown.storage),
        "task": task and task.data(places, shown.classes),
    }


def _image(image: SeenImage) -> dict[str, Any]:
    return {
        "id": image.id,
        "label": image.label,
        "width": image.width_px,
        "height": image.height_px,
        "bytes": np.cumsum([len(piece) for piece in image.pieces]).tolist(),
        "msSsim": image.ms_ssim,
        "cropMsSsim": image.crop_ms_ssim,
        "pieces": [base64.b64encode(piece).decode() for piece in image.pieces],
        "crops": [base64.b64encode(crop).decode() for crop in image.crops],
    }


def presets() -> dict[str, StorageConfig]:
    """Return the storages of `configs/storage` that have a single bandwidth, by name."""
    found: dict[str, StorageConfig] = {}
    for path in sorted((CONFIGS / "storage").glob("*.yaml")):
        values = yaml.safe_load(path.read_text())
        if values.get("bandwidth_mib_per_s") and "defaults" not in values:
            found[path.stem] = StorageConfig(**values)
    return found


def storage_of(name: str) -> StorageConfig:
    """Return a preset. Raises ConfigError if there is none of this name."""
    known = presets()
    if name not in known:
        raise ConfigError(f"--storage {name}: wanted one of {', '.join(known)}.")
    return known[name]


def _storage(storage: StorageConfig) -> dict[str, Any]:
    return {
        "bandwidthMibPerS": storage.bandwidth_mib_per_s,
        "latencyMs": storage.latency_ms,
        "seekMs": storage.seek_ms,
        "requestsPerS": storage.requests_per_s,
    }


def _start(storage: StorageConfig | None) -> dict[str, Any]:
    known = storage is not None and storage.bandwidth_mib_per_s is not None
    return _storage(storage if known and storage else _START) | {"trainImagesPerS": _START_IMAGES_PER_S}


@dataclass(frozen=True, slots=True)
class _Task:
    """A `tolerance` measurement, with its answers and the table behind them."""

    measured: Measured
    answers: dict[str, Markup]
    """Answers in words, by deployment."""
    table: pd.DataFrame
    words: str
    """The primary metric, such as `top-1`."""

    @classmethod
    def of(cls, measured: Measured) -> _Task:
        facts, matrix, sizes = measured.facts, matrix_of(measured), bytes_table(measured)
        table = answers_table(matrix, sizes, facts)
        answers = {
            use: _as_html(describe_tolerance(answer(matrix, use, facts.margin), table, sizes, facts))
            for use in DEPLOYMENTS
        }
        return cls(measured, answers, table, primary_metric_named(facts.headline).words)

    def data(self, places: Mapping[str, int], classes: Sequence[str]) -> dict[str, Any]:
        """Return the data for the script of the page."""
        facts = self.measured.facts
        whole = float(self.table.loc[self.table["train_group"] == max(facts.groups), "score"].iloc[0])
        return {
            "words": self.words,
            "groups": list(facts.groups),
            "margin": facts.margin,
            "whole": whole,
            "guessed": facts.chance_level,
            "hasIds": self.measured.ids is not None,
            "uses": [
                {
                    "name": use,
                    "words": WORDS[use],
                    "rows": _rows(self.table[self.table["deployment"] == use]),
                    "mistakes": [
                        _mistakes(self.measured, use, group, places, classes)
                        for group in (facts.groups if self.measured.has_classes else ())
                    ],
                }
                for use in DEPLOYMENTS
            ],
        }


def _as_html(markdown: str) -> Markup:
    """Return an answer as HTML, capitalised and without its first words, which name the deployment."""
    text = re.sub(
        r"^(\*\*)?([a-z])", lambda found: (found[1] or "") + found[2].upper(), markdown.partition(":** ")[2]
    )
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(escape(text))))


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    columns = ["train_group", "image_bytes", "score", "score_low", "score_high"]
    columns += ["loss", "loss_low", "loss_high", "verdict"]
    return table.sort_values("train_group")[columns].to_dict("records")  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Mistakes:
    """Images that are right with all scans and wrong at a group, and the number of the reverse."""

    positions: list[int]
    """The worst first, if margins are known."""
    said: list[int]
    """The predicted class of each image."""
    num_gained: int


def mistakes_of(measured: Measured, use: str, group: int) -> Mistakes:
    """Return the mistakes of a model trained at a group, in the deployment `use`."""
    found, labels = measured.predictions, measured.labels
    train = list(measured.facts.groups).index(group)
    test = train if use == "same" else len(measured.facts.groups) - 1
    said = found.classes[train, test]
    right, was_right = said == labels, found.classes[-1, -1] == labels
    positions = np.flatnonzero(was_right & ~right)
    if found.margins is not None:
        margins = found.margins[DEPLOYMENTS.index(use), train, positions]
        positions = positions[np.argsort(margins, kind="stable")]
    return Mistakes(positions.tolist(), said[positions].tolist(), int((right & ~was_right).sum()))


def wanted_mistakes(measured: Measured) -> list[str]:
    """Return ids of the images shown as mistakes, in turn over groups, so that each has its worst."""
    if measured.ids is None or not measured.has_classes:
        return []
    ids = measured.ids
    worst = (
        mistakes_of(measured, use, group).positions[:SHOWN_MISTAKES]
        for use in DEPLOYMENTS
        for group in measured.facts.groups[:-1]
    )
    return in_turn(*([ids[position] for position in positions] for positions in worst))[:_MOST_MISTAKES]


def _mistakes(
    measured: Measured, use: str, group: int, places: Mapping[str, int], classes: Sequence[str]
) -> dict[str, Any]:
    found = mistakes_of(measured, use, group)
    ids = measured.ids or []
    shown = [
        {"image": places[ids[position]], "said": classes[said], "right": classes[measured.labels[position]]}
        for position, said in zip(found.positions, found.said, strict=True)
        if ids and ids[position] in places
    ]
    return {
        "group": group,
        "numLost": len(found.positions),
        "numGained": found.num_gained,
        "shown": shown[:SHOWN_MISTAKES],
    }


def check_fits(facts: Facts, num_groups: int) -> None:
    """Refuse a measurement whose scan groups are not those of the records.

    Raises:
        ConfigError: the highest groups differ; the message names both.
    """
    if max(facts.groups) != num_groups:
        raise ConfigError(
            f"--tolerance: the measurement has scan groups up to {max(facts.groups)} (scan script "
            f"{facts.scans}), but the records have {num_groups}. Give the folder of a measurement of these "
            "images."
        )
