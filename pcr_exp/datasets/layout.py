"""Inspect a dataset's folders, and report what is missing in helpful errors."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pcr_exp.datasets.sample import Sample
from pcr_exp.datasets.seen import JPEG_SUFFIXES, SeenFiles, some
from pcr_exp.errors import DatasetError
from pcr_exp.system.words import counted


def open_root(root: str | None, dataset: str, wanted: str, source: str) -> Path:
    """Return the dataset's folder.

    Args:
        wanted: Contents that the folder should have, for the error.
        source: Publisher of the dataset, for the error.

    Raises:
        DatasetError: `root` is null or not a folder.
    """
    if root is None:
        raise DatasetError(f"dataset.root is null: {dataset} wants the folder that holds {wanted}. {source}")
    path = Path(root).expanduser()
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise DatasetError(
            f"dataset.root={root}: {path.absolute()} {what}; {dataset} wants a folder "
            f"that holds {wanted}. {source}"
        )
    return path


def need_dir(root: Path, name: str, source: str) -> Path:
    """Return `root/name`. Raises DatasetError, which lists what exists instead, if it is not a folder."""
    path = root / name
    if not path.is_dir():
        raise DatasetError(f"{path} is missing: wanted a folder. {root} holds {_contents(root)}. {source}")
    return path


def need_file(root: Path, names: Collection[str], source: str) -> Path:
    """Return the first `root/<name>` that is a file. Raises DatasetError, which lists what exists instead."""
    for name in names:
        if (root / name).is_file():
            return root / name
    looked_for = " or ".join(str(root / name) for name in names)
    raise DatasetError(f"{looked_for} is missing. {root} holds {_contents(root)}. {source}")


def read_class_folders(
    root: Path, folder: Path, class_names: list[str], label: str, source: str, seen: SeenFiles
) -> list[Sample]:
    """Return a sample for each `folder/<class>/*.jpg`, with ids relative to `root`.

    Raises:
        DatasetError: a class folder is missing, or has no JPEG.
    """
    samples = []
    for index, name in enumerate(class_names):
        class_folder = need_dir(folder, name, f"Every class needs images in both splits. {source}")
        images = seen.images(class_folder)
        if not images:
            raise DatasetError(
                f"class {name!r}: {class_folder} holds no JPEG ({' '.join(JPEG_SUFFIXES)}); it "
                f"holds {_contents(class_folder)}. Convert or remove the class."
            )
        prefix = class_folder.relative_to(root).as_posix()
        samples += [Sample(f"{prefix}/{path.name}", path, {label: index}) for path in images]
    return samples


def refuse_unknown_classes(folder: Path, class_names: list[str], reference: Path, seen: SeenFiles) -> None:
    """Raise DatasetError if `folder` has class folders missing from `class_names` (those of `reference`)."""
    unknown = sorted(set(seen.class_names(folder)) - set(class_names))
    if unknown:
        raise DatasetError(f"{folder} has class folders that {reference} lacks: {some(unknown)}.")


def match_listed(
    listed: Collection[str],
    found: dict[str, Path],
    metadata: Path,
    seen: SeenFiles,
    *,
    missing_ok: bool = False,
) -> list[str]:
    """Return the listed names that have a file, in listed order.

    An image that no row lists has no label, so it is left out with a remark. A listed image without a file is
    an error, or with `missing_ok` it is left out with a remark.

    Raises:
        DatasetError: a listed image is missing (without `missing_ok`), or no listed image exists.
    """
    unlisted = sorted(found.keys() - set(listed))
    if unlisted:
        seen.remarks.append(
            f"{counted(len(unlisted), 'image', 'are')} not in {metadata} and left out: {some(unlisted)}."
        )
    missing = [name for name in listed if name not in found]
    if len(missing) == len(listed):
        raise DatasetError(f"{metadata} lists {len(listed)} images, but none exists: {some(missing)}.")
    if missing and not missing_ok:
        raise DatasetError(
            f"{len(missing)} of the {len(listed)} images that {metadata} lists are missing: {some(missing)}. "
            "Unpack the archive again, or remove their rows from a copy of the dataset."
        )
    if missing:
        seen.remarks.append(
            f"{len(missing)} of {len(listed)} images in {metadata} are missing and are left out: "
            f"{some(missing)}."
        )
    return [name for name in listed if name in found]


def _contents(folder: Path) -> str:
    names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    return some(names, limit=5) or "nothing"
