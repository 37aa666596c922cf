"""Anyone's own class folders: `train/<class>/*` and `val/<class>/*`, or `<class>/*` alone."""

from __future__ import annotations

from pathlib import Path

from pcr_exp.config.dataset import FolderConfig
from pcr_exp.datasets.layout import list_class_names, open_root, read_class_folders, refuse_unknown_classes
from pcr_exp.datasets.sample import Dataset, make_dataset
from pcr_exp.datasets.splits import stratified_holdout
from pcr_exp.errors import DatasetError

LABEL = "class"
SOURCE = "Give the folder of your own pictures: dataset.root=/path/to/pictures."


def read(config: FolderConfig) -> Dataset:
    """JPEG files (.jpg, .jpeg, any case); files of other kinds are not looked at.

    Without train/ and val/, `val_fraction` of every class is held out, drawn by `split_seed`.

    Raises:
        DatasetError: no class folders, only one of train/ and val/, or a class without a JPEG.
    """
    root = open_root(config.root, "folder", "train/<class>/ and val/<class>/, or <class>/ alone", SOURCE)
    there = {name for name in ("train", "val") if (root / name).is_dir()}
    if len(there) == 1:
        missing = ({"train", "val"} - there).pop()
        raise DatasetError(
            f"{root} has {there.pop()}/ but no {missing}/. Wanted both, or neither and one folder per class: "
            "then a share of every class is held out."
        )
    return _read_splits(root) if there else _split_classes(root, config)


def _class_names(folder: Path) -> list[str]:
    names = list_class_names(folder)
    if len(names) < 2:
        raise DatasetError(
            f"{folder} has {len(names)} class folders; wanted two or more, each with its JPEGs. {SOURCE}"
        )
    return names


def _read_splits(root: Path) -> Dataset:
    train, val = root / "train", root / "val"
    class_names = _class_names(train)
    refuse_unknown_classes(val, class_names, train)
    return make_dataset(
        "folder",
        read_class_folders(root, train, class_names, LABEL, SOURCE),
        read_class_folders(root, val, class_names, LABEL, SOURCE),
        {LABEL: class_names},
    )


def _split_classes(root: Path, config: FolderConfig) -> Dataset:
    class_names = _class_names(root)
    samples = read_class_folders(root, root, class_names, LABEL, SOURCE)
    train, val = stratified_holdout(
        [sample.labels[LABEL] for sample in samples], config.val_fraction, config.split_seed
    )
    return make_dataset(
        "folder", [samples[i] for i in train], [samples[i] for i in val], {LABEL: class_names}
    )
