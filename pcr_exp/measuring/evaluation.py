"""Scores of trained networks on the same images at several scan groups and decode modes, per image."""

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
"""How images were read: `config.describe.scan_label`, encoding, scan group and `loader.decode`."""
MODEL_COLUMNS = ["model", "trained_on", "seed"]
SCORE_COLUMNS = [*MODEL_COLUMNS, *LEVEL_COLUMNS, "image", "label", "top1", "top5", "loss"]

MARGIN = "margin"
"""Extra column for tasks that rank two classes: the margin that AUC is computed from."""
OF_SETS = ("score of ", "has ")
"""With task=multilabel, prefixes of the per-class columns that replace top1 and top5: output, and 0 or 1."""
OF_NUMBERS = ("said", "wanted", "absolute_error")
"""Columns that replace top1 and top5 with task=regression, in the label's unit."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A network to evaluate."""

    name: str
    """Name of its run, or of the model."""
    network: nn.Module
    normalization: Normalization
    trained_on: str = "published"
    """Label of the scan level that it was trained at."""
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
    """Name of the progressive images' scan script."""

    @property
    def columns(self) -> dict[str, str | int]:
        """Values of LEVEL_COLUMNS."""
        static = ScanConfig(name="static", encoding=self.encoding, group=self.group)
        scan = in_script(scan_label(static), self.script if self.encoding == "pcr" else "default")
        return {
            "scan": scan,
            "encoding": self.encoding,
            "group": group_number(self.encoding, self.group),
            "decode": self.decode,
        }


def levels_of(groups: Iterable[int], decodes: Sequence[str], script: str = "default") -> list[Level]:
    """Return the baseline once, as all decode modes are alike there, then every group in every mode."""
    levels = [Level("pcr", group, decode, script) for decode in decodes for group in groups]
    return [Level("baseline", 1, decodes[0]), *levels]


class LevelBatch(NamedTuple):
    """A batch of images at one level."""

    level: Level
    first: int
    """Index of the batch's first image among all images."""
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
        trained: Networks on `device`, in eval mode.
        batches: All levels of the same images, in any order.
        outputs: int64 [classes]: index of the network output that stands for each class of the label.
        device: Device that computes.
        margins: Add a column `margin`: the second class's output minus the first's, for two-class labels.
        task: A multilabel or regression task has scores of its own.
        progress: Called with the number of images scored so far, summed over all levels.

    Returns:
        SCORE_COLUMNS, one row per network, level and image. `image` is the image's index, `top1` and `top5`
        are 0 or 1 (top5 is always 1 for networks with fewer than 5 outputs), `loss` is cross-entropy. With a
        multilabel or regression task, OF_SETS or OF_NUMBERS replace `top1` and `top5`; `loss` is the task's.

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
    """Return the index of the network output for each class of a dataset, int64 [classes].

    Args:
        class_names: Class names of the dataset's label, in its order.
        lines: One line per network output; its first word is the class.
        source: File of the lines, for the error message.

    Raises:
        ConfigError: a class of the dataset is missing, or a line is empty or repeats a class.
    """
    names = [(line.split() or [""])[0] for line in lines]
    places = {name: place for place, name in enumerate(names)}
    if "" in places or len(places) < len(names):
        raise ConfigError(f"classes={source}: a line is empty or repeats a class; wanted one class per line.")
    missing = [name for name in class_names if name not in places]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise ConfigError(
            f"classes={source}: the file has {len(names)} classes, but lacks {', '.join(missing[:5])}{more}, "
            "which the dataset has; wanted all classes of the dataset, under the same names."
        )
    return torch.tensor([places[name] for name in class_names])
