"""Anyone's own class folders: `train/<class>/*` and `val/<class>/*`, or `<class>/*` alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pcr_exp.config.components import register
from pcr_exp.config.dataset import OwnSplitConfig
from pcr_exp.datasets.layout import open_root, read_class_folders, refuse_unknown_classes
from pcr_exp.datasets.looked import Looked, some
from pcr_exp.datasets.sample import Dataset, make_dataset
from pcr_exp.errors import DatasetError

LABEL = "class"
SOURCE = "Give the folder of your own images: dataset.root=/path/to/images."


@dataclass(kw_only=True, slots=True)
class FolderConfig(OwnSplitConfig):
    """Anyone's own class folders: root/train/<class>/ and root/val/<class>/, or root/<class>/ alone.

    `val_fraction` of the images is held out when root has no val folder.
    """


@register("dataset", "folder", FolderConfig)
def read(config: FolderConfig) -> Dataset:
    """JPEG files (.jpg, .jpeg, any case); files of other kinds are counted, and said.

    Without train/ and val/, `val_fraction` of the images is held out, by `split_seed` and their ids.

    Raises:
        DatasetError: no class folders, only one of train/ and val/, or a class without a JPEG, or without one
            to train on.
    """
    root = open_root(config.root, "folder", "train/<class>/ and val/<class>/, or <class>/ alone", SOURCE)
    there = {name for name in ("train", "val") if (root / name).is_dir()}
    if len(there) == 1:
        missing = ({"train", "val"} - there).pop()
        raise DatasetError(
            f"{root} has {there.pop()}/ but no {missing}/. Wanted both, or neither and one folder per class: "
            "then a share of the images is held out."
        )
    looked = Looked()
    class_names = _class_names(root / "train" if there else root, looked)
    if not there:
        samples = read_class_folders(root, root, class_names, LABEL, SOURCE, looked)
        return make_dataset(config, samples, {LABEL: class_names}, looked, each_class_trains=True)
    if others := set(looked.class_names(root)) - there:
        looked.remarks.append(
            f"{root} has folders beside train/ and val/, which are not looked at: {some(sorted(others))}."
        )
    refuse_unknown_classes(root / "val", class_names, root / "train", looked)
    train, val = (
        read_class_folders(root, root / split, class_names, LABEL, SOURCE, looked)
        for split in ("train", "val")
    )
    return make_dataset(config, train, {LABEL: class_names}, looked, val=val, each_class_trains=True)


def _class_names(folder: Path, looked: Looked) -> list[str]:
    names = looked.class_names(folder)
    if len(names) < 2:
        raise DatasetError(
            f"{folder} has {len(names)} class folders; wanted two or more, each with its JPEGs. {SOURCE}"
        )
    return names
