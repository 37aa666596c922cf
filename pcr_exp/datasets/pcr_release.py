"""Files of the PCR paper's public code: records with a `PCR.db`, in `train/` and `val/` or in one folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pcr_exp.config.components import register
from pcr_exp.config.dataset import OwnSplitConfig
from pcr_exp.datasets.layout import need_file, open_root
from pcr_exp.datasets.sample import Dataset, Sample, make_dataset
from pcr_exp.datasets.seen import SeenFiles, some
from pcr_exp.errors import DatasetError
from pcr_exp.system.words import counted

LABEL = "class"
CLASSES_FILE, INDEX_FILE = "classes.txt", "PCR.db"
SOURCE = "The converter in the PCR paper's public code writes them."
_TENSORFLOW_INDEX = "PCR_index.pb"


@dataclass(kw_only=True, slots=True)
class PcrReleaseConfig(OwnSplitConfig):
    """Records of the PCR paper's public code; label class.

    `val_fraction` of the images is held out if root itself contains PCR.db. Class names are the label
    numbers, or the lines of a file `classes.txt` in root.
    """


@register("dataset", "pcr_release", PcrReleaseConfig)
def read(config: PcrReleaseConfig) -> Dataset:
    """Read every image of every record that an index lists. Each record is read once to find its images.

    An image's id is its record and its position there, as the release keeps no file names.

    Raises:
        DatasetError: there is no index, or only one of train/ and val/; or a record is missing or damaged.
    """
    root = open_root(config.root, "pcr_release", f"{INDEX_FILE} and its records, or train/ and val/", SOURCE)
    seen = SeenFiles()
    there = {name for name in ("train", "val") if (root / name).is_dir()}
    if len(there) == 1:
        missing = ({"train", "val"} - there).pop()
        raise DatasetError(
            f"{root} has {there.pop()}/ but no {missing}/. Wanted both, or {INDEX_FILE} alone."
        )
    train = _read_folder(root, root / "train" if there else root, seen)
    val = _read_folder(root, root / "val", seen) if there else None
    names = _class_names(root, [*train, *(val or ())], seen)
    return make_dataset(config, train, {LABEL: names}, seen, val=val)


def _read_folder(root: Path, folder: Path, seen: SeenFiles) -> list[Sample]:
    # numpy is imported only when a dataset is read, so that `--help` and composing stay fast.
    from pcr_exp.datasets.release_files import ReleaseImage, read_index, read_record

    if not (folder / INDEX_FILE).exists() and (folder / _TENSORFLOW_INDEX).exists():
        raise DatasetError(
            f"{folder} holds {_TENSORFLOW_INDEX}, the index of the release's TensorFlow variant, which is "
            f"not supported. Convert the images with its PyTorch variant, which writes {INDEX_FILE}."
        )
    index = seen.table(need_file(folder, [INDEX_FILE], SOURCE))
    samples = []
    lengths = read_index(index)
    unlisted = sorted(path.name for path in folder.glob("*.pcr") if path.name not in lengths)
    if unlisted:
        seen.remarks.append(
            f"{counted(len(unlisted), 'record', 'are')} not in {index} and left out: {some(unlisted)}."
        )
    for name, parts in lengths.items():
        path = seen.table(need_file(folder, [name], f"{index} lists it. {SOURCE}"))
        record = read_record(path, parts)
        prefix = path.relative_to(root).as_posix()
        samples += [
            Sample(f"{prefix}/{i:05d}.jpg", path, {LABEL: label}, packed=ReleaseImage(record, i))
            for i, label in enumerate(record.labels)
        ]
    seen.num_images += len(samples)
    return samples


def _class_names(root: Path, samples: list[Sample], seen: SeenFiles) -> list[str]:
    num_classes = 1 + max((sample.labels[LABEL] for sample in samples), default=-1)
    path = root / CLASSES_FILE
    if not path.is_file():
        return [str(label) for label in range(num_classes)]
    names = seen.table(path).read_text(encoding="utf-8").split("\n")
    names = [name.strip() for name in names if name.strip()]
    if len(names) < num_classes or len(set(names)) < len(names):
        raise DatasetError(
            f"{path} names {len(set(names))} classes in {len(names)} lines; the records have labels up to "
            f"{num_classes - 1}. Wanted one distinct name per line, starting with label 0."
        )
    return names
