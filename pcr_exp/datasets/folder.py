"""Your own images in class folders: `train/<class>/*` and `val/<class>/*`, or only `<class>/*`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pcr_exp.config.check import Bound, or_null
from pcr_exp.config.components import register
from pcr_exp.config.dataset import OwnSplitConfig
from pcr_exp.datasets.layout import open_root, read_class_folders, refuse_unknown_classes
from pcr_exp.datasets.sample import Dataset, LabelledImages, Sample, make_dataset, make_images
from pcr_exp.datasets.seen import SeenFiles, some
from pcr_exp.errors import DatasetError

LABEL = "class"
SOURCE = "Give the folder of your own images: dataset.root=/path/to/images."


def _num_captured(expression: str) -> int:
    try:
        return re.compile(expression).groups
    except re.error:
        return 0


_ONE_GROUP = or_null(
    Bound(
        lambda expression: _num_captured(expression) == 1,
        "a regular expression with one group in parentheses, such as '/(patient[0-9]+)_'",
    )
)


@dataclass(kw_only=True, slots=True)
class FolderConfig(OwnSplitConfig):
    """Your own class folders: root/train/<class>/ and root/val/<class>/, or only root/<class>/.

    `val_fraction` of the images is held out if root has no val folder.
    """

    group_by: Annotated[str | None, _ONE_GROUP] = None
    """Regular expression with one group, searched for in each image's path below root. Images with the same
    captured text, such as a patient's number, belong together: a split or fold never separates them, and
    `experiments.tolerance` resamples them together (null: each image is independent)."""


@register("dataset", "folder", FolderConfig)
def read(config: FolderConfig) -> Dataset:
    """Read JPEG files (.jpg, .jpeg, any case). Files of other kinds are counted in a remark.

    Without train/ and val/, `val_fraction` of the images is held out, by `split_seed` and their ids.

    Raises:
        DatasetError: there are no class folders, or only one of train/ and val/; or a class has no JPEG, or
            none to train on.
    """
    root, there = _open(config)
    if len(there) == 1:
        missing = ({"train", "val"} - there).pop()
        raise DatasetError(
            f"{root} has {there.pop()}/ but no {missing}/. Wanted both, or neither and one folder per class. "
            "In that case, a share of the images is held out."
        )
    seen = SeenFiles()
    class_names = _class_names(root / "train" if there else root, seen, least=2)
    if not there:
        samples = _grouped(read_class_folders(root, root, class_names, LABEL, SOURCE, seen), config.group_by)
        return make_dataset(config, samples, {LABEL: class_names}, seen, each_class_trains=True)
    if others := set(seen.class_names(root)) - there:
        seen.remarks.append(
            f"{root} has folders besides train/ and val/, which are ignored: {some(sorted(others))}."
        )
    refuse_unknown_classes(root / "val", class_names, root / "train", seen)
    train, val = (
        _grouped(read_class_folders(root, root / split, class_names, LABEL, SOURCE, seen), config.group_by)
        for split in ("train", "val")
    )
    both = {sample.group for sample in train} & {sample.group for sample in val} - {None}
    if both and not config.folds:
        seen.remarks.append(
            f"{len(both)} groups of dataset.group_by={config.group_by!r} have images in both train/ and val/ "
            f"({some(sorted(map(str, both)))}), so results on val are too good. Split the images again, or "
            "give class folders without train/ and val/, which are then split by group."
        )
    return make_dataset(config, train, {LABEL: class_names}, seen, val=val, each_class_trains=True)


@register("dataset.images", "folder", FolderConfig)
def read_images(config: FolderConfig) -> LabelledImages:
    """Read the same files, from train/ and val/ together, or from the one that exists.

    Raises:
        DatasetError: there is no class folder, or a class has no JPEG.
    """
    root, there = _open(config)
    seen = SeenFiles()
    found = {
        folder: _class_names(folder, seen, least=1)
        for folder in ([root / name for name in sorted(there)] or [root])
    }
    class_names = sorted({name for names in found.values() for name in names})
    samples = []
    for folder, names in found.items():
        numbers = [class_names.index(name) for name in names]
        for sample in read_class_folders(root, folder, names, LABEL, SOURCE, seen):
            samples.append(replace(sample, labels={LABEL: numbers[sample.labels[LABEL]]}))
    return make_images(config, samples, {LABEL: class_names}, seen)


def _open(config: FolderConfig) -> tuple[Path, set[str]]:
    """Return the dataset's folder, and which of train/ and val/ exist in it."""
    root = open_root(config.root, "folder", "train/<class>/ and val/<class>/, or <class>/ alone", SOURCE)
    return root, {name for name in ("train", "val") if (root / name).is_dir()}


def _grouped(samples: list[Sample], expression: str | None) -> list[Sample]:
    """Return the samples with their groups. Raises DatasetError if one has no group."""
    if expression is None:
        return samples
    found = [re.search(expression, sample.id) for sample in samples]
    captured = [match and match[1] for match in found]
    if without := [sample.id for sample, group in zip(samples, captured, strict=True) if not group]:
        raise DatasetError(
            f"dataset.group_by={expression!r} captures nothing in {without[0]} ({len(without)} of "
            f"{len(samples)} images): wanted a group for every image, in its path below dataset.root."
        )
    return [replace(sample, group=group) for sample, group in zip(samples, captured, strict=True)]


def _class_names(folder: Path, seen: SeenFiles, *, least: int) -> list[str]:
    names = seen.class_names(folder)
    if len(names) < least:
        loose = len(seen.images(folder))
        flat = (
            f" The {loose} JPEG files in it have no label: give a table of them, dataset=table "
            "dataset.root=<this folder> dataset.table=<a CSV file with the columns path and label>."
        )
        raise DatasetError(
            f"{folder} has {len(names)} class folders; wanted {'two' if least == 2 else 'one'} or more, each "
            f"with its JPEGs. {SOURCE}{flat if loose else ''}"
        )
    return names
