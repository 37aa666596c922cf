"""ImageNet (ILSVRC 2012) in class folders: `train/<wnid>/*.JPEG` and `val/<wnid>/*.JPEG`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pcr_exp.config.components import register
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.datasets.layout import (
    need_dir,
    open_root,
    read_class_folders,
    refuse_unknown_classes,
)
from pcr_exp.datasets.sample import Dataset, make_dataset
from pcr_exp.datasets.seen import SeenFiles, some
from pcr_exp.errors import DatasetError

LABEL = "wnid"
SOURCE = (
    "ImageNet is obtained from image-net.org, after registration: "
    "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar."
)


@dataclass(kw_only=True, slots=True)
class ImageNetConfig(DatasetConfig):
    """ILSVRC 2012 class folders; label wnid."""


@register("dataset", "imagenet", ImageNetConfig)
def read(config: ImageNetConfig) -> Dataset:
    """Read every class folder of train/, and the same classes of val/; a subset of the 1,000 classes works.

    Raises:
        DatasetError: a folder is missing, empty or misnamed, or val/ is still one flat folder.
    """
    root = open_root(config.root, "imagenet", "train/<wnid>/*.JPEG and val/<wnid>/*.JPEG", SOURCE)
    train, val = need_dir(root, "train", SOURCE), need_dir(root, "val", SOURCE)
    seen = SeenFiles()
    class_names = seen.class_names(train)
    _check_train(train, class_names)
    _check_val(val)
    refuse_unknown_classes(val, class_names, train, seen)
    return make_dataset(
        config,
        read_class_folders(root, train, class_names, LABEL, SOURCE, seen),
        {LABEL: class_names},
        seen,
        val=read_class_folders(root, val, class_names, LABEL, SOURCE, seen),
        each_class_trains=True,
    )


def _check_train(train: Path, class_names: list[str]) -> None:
    if not class_names:
        raise DatasetError(
            f"{train} has no class folders. ILSVRC2012_img_train.tar holds one archive per class: "
            f"unpack each <wnid>.tar into a folder of its own. {SOURCE}"
        )
    strange = [name for name in class_names if not re.fullmatch(r"n\d{8}", name)]
    if strange:
        raise DatasetError(
            f"{train}: class folders are named by WordNet id (n and eight digits), not {some(strange)}. "
            "For class folders of your own, use dataset=folder."
        )


def _check_val(val: Path) -> None:
    flat = [path.name for path in SeenFiles().images(val)]
    if flat:
        raise DatasetError(
            f"{val} holds images that are in no class folder: {some(flat)}. That is how "
            "ILSVRC2012_img_val.tar unpacks. Move each into val/<wnid>/; its class is in the devkit's "
            "ILSVRC2012_validation_ground_truth.txt (ids as in meta.mat)."
        )
