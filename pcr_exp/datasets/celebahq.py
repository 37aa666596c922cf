"""CelebA-HQ smiles, in CelebAMask-HQ's layout (Lee et al. 2020).

    CelebA-HQ-img/<i>.jpg  CelebAMask-HQ-attribute-anno.txt

The annotation file contains the number of images, the 40 attribute names, and a row for each image: its name
and 40 values of 1 or -1.
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
from pcr_exp.errors import DatasetError

LABEL = "smiling"
ATTRIBUTE = "Smiling"
IMAGES = "CelebA-HQ-img"
ANNOTATION = "CelebAMask-HQ-attribute-anno.txt"
SOURCE = "CelebAMask-HQ is obtained from its authors' page (switchablenorms/CelebAMask-HQ on GitHub)."


@dataclass(kw_only=True, slots=True)
class CelebAHQConfig(OwnSplitConfig):
    """CelebAMask-HQ; label smiling."""

    split: Annotated[str, one_of("hash", "file")] = "hash"
    """`hash`: by a hash of each id. `file`: the paper's split, for strict reproduction: scikit-learn's split
    of the files in numeric order. With `file`, a new image moves others."""

    def __post_init__(self) -> None:
        OwnSplitConfig.__post_init__(self)
        by_hash = self.split == "hash" or not self.folds
        require(by_hash, "dataset.split", self.split, "hash, with dataset.num_folds")


@register("dataset", "celebahq", CelebAHQConfig)
def read(config: CelebAHQConfig) -> Dataset:
    """Read the annotated images, split as `config.split` specifies.

    The official file always lists 30,000 images. Rows without an image are left out with a remark, so a
    subset of the folder works.

    Raises:
        DatasetError: the folder or file is missing, a row is invalid, or no listed image exists.
    """
    seen = SeenFiles()
    root = open_root(config.root, "celebahq", f"{IMAGES}/ and {ANNOTATION}", SOURCE)
    annotation = seen.table(need_file(root, [ANNOTATION], SOURCE))
    folder = need_dir(root, IMAGES, SOURCE)
    smiles = _read_smiles(annotation)
    found = {path.name: path for path in seen.images(folder)}
    names = sorted(match_listed(smiles.keys(), found, annotation, seen, missing_ok=True), key=_number)
    samples = [Sample(f"{IMAGES}/{name}", found[name], {LABEL: smiles[name]}) for name in names]
    classes = {LABEL: ["not_smiling", "smiling"]}
    if config.split == "hash":
        return make_dataset(config, samples, classes, seen)
    train, val = holdout(len(samples), config.val_fraction, config.split_seed)
    return make_dataset(config, [samples[i] for i in train], classes, seen, val=[samples[i] for i in val])


def _number(name: str) -> tuple[int, str]:
    stem = name.split(".")[0]
    return (int(stem) if stem.isdecimal() else -1, name)


def _read_smiles(path: Path) -> dict[str, int]:
    """Return image name -> 1 if smiling, else 0."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) < 3 or not lines[0].strip().isdecimal():
        raise DatasetError(
            f"{path}: wanted a count, a line of attribute names and one row per image. {SOURCE}"
        )
    attributes = lines[1].split()
    if ATTRIBUTE not in attributes:
        raise DatasetError(f"{path}, line 2: no attribute {ATTRIBUTE!r} among {len(attributes)}. {SOURCE}")
    column = 1 + attributes.index(ATTRIBUTE)
    smiles: dict[str, int] = {}
    for number, line in enumerate(lines[2:], start=3):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 1 + len(attributes) or fields[column] not in ("1", "-1"):
            raise DatasetError(
                f"{path}, line {number}: wanted an image's name and {len(attributes)} values of 1 or -1."
            )
        smiles[fields[0]] = int(fields[column] == "1")
    if len(smiles) != int(lines[0]):
        raise DatasetError(
            f"{path} says {lines[0].strip()} images but lists {len(smiles)}: it may be cut short. {SOURCE}"
        )
    return smiles
