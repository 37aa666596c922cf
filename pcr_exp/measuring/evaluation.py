"""Trained networks on the same images at several scan groups and decode modes, image by image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcr_exp.config.describe import group_number, in_script, scan_label
from pcr_exp.config.scan import ScanConfig
from pcr_exp.errors import ConfigError
from pcr_exp.records.class_values import members_of
from pcr_exp.training.inputs import Normalization, model_input
from pcr_exp.training.task import TOP_K, Task
from pcr_exp.training.values import MultiLabel, Regression

LEVEL_COLUMNS = ["scan", "encoding", "group", "decode"]
"""How images were read: as `config.labels.scan_label` says it, and the value of `loader.decode`."""
MODEL_COLUMNS = ["model", "trained_on", "seed"]
SCORE_COLUMNS = [*MODEL_COLUMNS, *LEVEL_COLUMNS, "image", "label", "top1", "top5", "loss"]

MARGIN = "margin"
"""A further one, where classes are ranked: what AUC is made of."""
OF_SETS = ("score of ", "has ")
"""In place of top1 and top5, before a class's name (task=multilabel): a network's output, and 0 or 1."""
OF_NUMBERS = ("said", "wanted", "absolute_error")
"""In place of them with task=regression, in the label's unit."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A network that is evaluated."""

    name: str
    """The name of its run, or of the model."""
    network: nn.Module
    normalization: Normalization
    trained_on: str = "published"
    """The label of the scan level that it was trained at."""
    seed: int = 0

    def logits(self, images: Tensor, device: torch.device) -> Tensor:
        """Return float32 logits [B, outputs] of uint8 images [B, H, W, 3]."""
        inputs = model_input(images, device, channels_last=True, normalization=self.normalization)
        outputs: Tensor = self.network(inputs)
        return outputs.float()


@dataclass(frozen=True, slots=True)
class Level:
    """One way of reading the images."""

    encoding: str
    """`pcr` or `baseline`."""
    group: int
    decode: str
    script: str = "default"
    """The name of the progressive images' scan script."""

    @property
    def columns(self) -> dict[str, str | int]:
        """LEVEL_COLUMNS."""
        static = ScanConfig(name="static", encoding=self.encoding, group=self.group)
        scan = in_script(scan_label(static), self.script if self.encoding == "pcr" else "default")
        return {
            "scan": scan,
            "encoding": self.encoding,
            "group": group_number(self.encoding, self.group),
            "decode": self.decode,
        }


def levels_of(groups: Iterable[int], decodes: Sequence[str], script: str = "default") -> list[Level]:
    """Return baseline, once, for all decode modes are alike there; then every group in every mode."""
    levels = [Level("pcr", group, decode, script) for decode in decodes for group in groups]
    return [Level("baseline", 1, decodes[0]), *levels]


class LevelBatch(NamedTuple):
    """Some images at one level."""

    level: Level
    first: int
    """The number of the first of them among all images."""
    images: Tensor
    """uint8 [B, H, W, 3]"""
    labels: Tensor
    """int64 [B] class indexes."""


def score_images(
    trained: Sequence[Trained],
    batches: Iterable[LevelBatch],
    *,
    outputs: Tensor,
    device: torch.device,
    margins: bool = False,
    task: Task | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> pd.DataFrame:
    """Score every image at every level with every network.

    Args:
        trained: On `device`, in eval mode.
        batches: All levels of the same images, in any order.
        outputs: int64 [classes]: which of the networks' outputs stands for each class of the label.
        device: Where it computes.
        margins: Add a column `margin`, of a label with two classes: the second's output less the first's.
        task: If it is multilabel or regression, scores are what it is judged by.
        progress: Called with the number of images that were scored, those of all levels together.

    Returns:
        SCORE_COLUMNS, a row per network, level and image: `image` is its number, `top1` and `top5` are 0 or 1
        (top5 of networks of fewer than 5 outputs is always 1), `loss` is cross-entropy. With such a task,
        OF_SETS or OF_NUMBERS stand in place of these two, and `loss` is the task's.

    Raises:
        PcrExpError: a batch cannot be read or decoded.
    """
    parts, done = [], 0
    for level, first, images, labels in batches:
        for each in trained:
            with torch.inference_mode():
                logits = each.logits(images, device)
                if isinstance(task, MultiLabel | Regression):
                    scores = _values(task, logits, labels.to(device))
                else:
                    scores = _scores(logits, outputs[labels].to(device))
                scores |= _margins(logits, outputs) if margins else {}
            columns: dict[str, Any] = {
                "model": each.name,
                "trained_on": each.trained_on,
                "seed": each.seed,
                **level.columns,
                "image": range(first, first + len(labels)),
                "label": labels,
                **scores,
            }
            parts.append(pd.DataFrame(columns))
        done += len(labels)
        progress(done)
    frame = pd.concat(parts, ignore_index=True)
    return frame.sort_values([*MODEL_COLUMNS, "decode", "encoding", "group", "image"], ignore_index=True)


def _scores(logits: Tensor, targets: Tensor) -> dict[str, list[Any]]:
    best = logits.topk(min(TOP_K, logits.shape[1]), dim=1).indices == targets[:, None]
    loss = F.cross_entropy(logits, targets, reduction="none")
    return {
        "top1": best[:, 0].int().tolist(),
        "top5": best.any(dim=1).int().tolist(),
        "loss": [round(value, 5) for value in loss.tolist()],
    }


def _values(task: MultiLabel | Regression, outputs: Tensor, labels: Tensor) -> dict[str, list[Any]]:
    target = task.target(labels)
    columns: dict[str, Tensor] = {}
    if isinstance(task, Regression):
        said = task.numbers(outputs[:, 0]).cpu()
        wanted = torch.tensor([float(task.classes[i]) for i in labels.tolist()], dtype=torch.float64)
        columns = dict(zip(OF_NUMBERS, (said, wanted, (said - wanted).abs()), strict=True))
        losses = F.mse_loss(outputs[:, 0], target, reduction="none")
    else:
        for i, name in enumerate(members_of(task.classes)):
            columns |= {OF_SETS[0] + name: outputs[:, i], OF_SETS[1] + name: target[:, i].int()}
        losses = F.binary_cross_entropy_with_logits(outputs, target, reduction="none").mean(dim=1)
    lists: dict[str, list[Any]] = {name: column.tolist() for name, column in columns.items()}
    return lists | {"loss": [round(value, 5) for value in losses.tolist()]}


def _margins(logits: Tensor, outputs: Tensor) -> dict[str, list[Any]]:
    first, second = (logits[:, output].double() for output in outputs.tolist())
    return {MARGIN: (second - first).tolist()}


def outputs_of_classes(class_names: Sequence[str], lines: Sequence[str], source: str) -> Tensor:
    """Return which of a network's outputs stands for each class of a dataset, int64 [classes].

    Args:
        class_names: Of the dataset's label, in its order.
        lines: The classes of the network's outputs, the first word of each line.
        source: The file they come from, for the message.

    Raises:
        ConfigError: a class of the dataset is not among them, or a line is empty or comes twice.
    """
    names = [(line.split() or [""])[0] for line in lines]
    places = {name: place for place, name in enumerate(names)}
    if "" in places or len(places) < len(names):
        raise ConfigError(f"classes={source}: a line is empty or comes twice; wanted a class on every line.")
    missing = [name for name in class_names if name not in places]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise ConfigError(
            f"classes={source}: {len(names)} classes, without {', '.join(missing[:5])}{more}, which the "
            "dataset has; wanted all of its classes, by the names that it gives them."
        )
    return torch.tensor([places[name] for name in class_names])
