"""A small part of a dataset in class folders, to take along where there is no room for all of it."""

from __future__ import annotations

from pathlib import Path

from pcr_exp.datasets.sample import Dataset
from pcr_exp.errors import DatasetError

_SPLITS = ("train", "val")


def copy_classes(dataset: Dataset, label: str, max_images: int, root: Path) -> tuple[int, int]:
    """Copy the first images of train and val to `root/<split>/<class>/`, as `dataset=folder` reads them.

    Val gets a fifth of them. Classes without an image in both are left out. Nothing of the dataset is
    changed, and a folder that is there already is refused.

    Args:
        dataset: In its lasting order, so that the first images are a random subset.
        label: What class folders are named by.
        max_images: Of both splits together.
        root: Is made.

    Returns:
        How many images were copied, and their bytes.

    Raises:
        DatasetError: `root` is there already, or fewer than two classes are left.
    """
    if root.exists():
        raise DatasetError(f"{root} is there already: delete it, or give another folder to copy to.")
    numbers = {"val": max(1, max_images // 5)}
    numbers["train"] = max_images - numbers["val"]
    chosen = {split: dataset.splits[split][: numbers[split]] for split in _SPLITS}
    kept = set.intersection(*({sample.labels[label] for sample in chosen[split]} for split in _SPLITS))
    if len(kept) < 2:
        raise DatasetError(
            f"{dataset.name}: {len(kept)} classes of {label!r} have images among the first {max_images}; "
            "wanted two or more. Copy more images."
        )
    num_images = num_bytes = 0
    for split in _SPLITS:
        for sample in chosen[split]:
            if sample.labels[label] in kept:
                folder = root / split / dataset.classes[label][sample.labels[label]]
                folder.mkdir(parents=True, exist_ok=True)
                content = sample.file.read_bytes()
                (folder / f"{num_images:06d}{Path(sample.id).suffix}").write_bytes(content)
                num_images, num_bytes = num_images + 1, num_bytes + len(content)
    return num_images, num_bytes
