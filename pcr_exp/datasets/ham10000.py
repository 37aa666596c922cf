"""HAM10000 skin lesions (Tschandl et al. 2018): two image folders and a metadata table.

HAM10000_images_part_1/ISIC_*.jpg  HAM10000_images_part_2/ISIC_*.jpg  HAM10000_metadata.csv
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pcr_exp.config.check import one_of, require
from pcr_exp.config.components import register
from pcr_exp.config.dataset import OwnSplitConfig
from pcr_exp.datasets.layout import match_listed, need_dir, need_file, open_root
from pcr_exp.datasets.sample import Dataset, Sample, holdout, make_dataset
from pcr_exp.datasets.seen import SeenFiles
from pcr_exp.datasets.table_file import read_columns
from pcr_exp.errors import DatasetError

LABEL = "dx"
DIAGNOSES = ["akiec", "bcc", "bkl", "df", "mel", "nv", "vasc"]
PARTS = ("HAM10000_images_part_1", "HAM10000_images_part_2")
METADATA = ("HAM10000_metadata.csv", "HAM10000_metadata")
SOURCE = "HAM10000 is obtained from the Harvard Dataverse (ViDIR group, Medical University of Vienna)."


@dataclass(kw_only=True, slots=True)
class Ham10000Config(OwnSplitConfig):
    """HAM10000; label dx."""

    split: Annotated[str, one_of("lesion", "file")] = "lesion"
    """`lesion`: all images of a lesion are in one split. `file`: the paper's split, for strict reproduction:
    scikit-learn's split of the sorted files. With `file`, train and val share lesions, and a new image moves
    others."""

    def __post_init__(self) -> None:
        OwnSplitConfig.__post_init__(self)
        by_lesion = self.split == "lesion" or not self.folds
        require(by_lesion, "dataset.split", self.split, "lesion, with dataset.num_folds")


@dataclass(frozen=True, slots=True)
class _Row:
    lesion: str
    diagnosis: int


@register("dataset", "ham10000", Ham10000Config)
def read(config: Ham10000Config) -> Dataset:
    """Read the labelled images, split as `config.split` specifies.

    `lesion`: `val_fraction` of the lesions are held out with all their images, by a hash of their ids.
    `file`: the paper's split, drawn over the files sorted by image id. A lesion has up to six images, which
    may be in both train and val, so validation accuracy is too high by an unknown amount.
    With either, no lesion is in both train and tune.

    Raises:
        DatasetError: a folder or the table is missing, a row is invalid, or a listed image is missing.
    """
    wanted = f"{PARTS[0]}/, {PARTS[1]}/ and {METADATA[0]}"
    root = open_root(config.root, "ham10000", wanted, SOURCE)
    seen = SeenFiles()
    table = seen.table(need_file(root, METADATA, SOURCE))
    folders = [need_dir(root, part, SOURCE) for part in PARTS]
    rows = _read_rows(table)
    found = {path.stem: path for folder in folders for path in seen.images(folder)}
    ids = sorted(match_listed(rows.keys(), found, table, seen))

    def sample(image: str) -> Sample:
        path = found[image]
        row = rows[image]
        return Sample(path.relative_to(root).as_posix(), path, {LABEL: row.diagnosis}, group=row.lesion)

    samples = [sample(image) for image in ids]
    classes = {LABEL: list(DIAGNOSES)}
    if config.split == "lesion":
        return make_dataset(config, samples, classes, seen)
    train, val = holdout(len(samples), config.val_fraction, config.split_seed)
    return make_dataset(config, [samples[i] for i in train], classes, seen, val=[samples[i] for i in val])


def _read_rows(table: Path) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    cells, first = read_columns(table, ["lesion_id", "image_id", "dx"], SOURCE)
    for line, (lesion, image, diagnosis) in enumerate(zip(*cells, strict=True), start=first):
        where = f"{table}, line {line}"
        if not lesion or not image:
            raise DatasetError(f"{where}: lesion_id={lesion!r}, image_id={image!r}; wanted both.")
        if diagnosis not in DIAGNOSES:
            raise DatasetError(f"{where}: dx={diagnosis!r}; wanted one of {', '.join(DIAGNOSES)}.")
        if image in rows:
            raise DatasetError(f"{where}: {image} is listed twice.")
        rows[image] = _Row(lesion, DIAGNOSES.index(diagnosis))
    if not rows:
        raise DatasetError(f"{table} lists no image. {SOURCE}")
    return rows
