"""Stanford Cars (Krause et al. 2013): images, and MATLAB files with their car models.

    cars_train/*.jpg  cars_test/*.jpg  devkit/cars_meta.mat  devkit/cars_train_annos.mat
    cars_test_annos_withlabels.mat (at the root or in devkit/)

Three labels from fine to coarse, as in the PCR paper: the model, its make, and whether it is a Corvette.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcr_exp.config.components import register
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.datasets.layout import match_listed, need_dir, need_file, open_root
from pcr_exp.datasets.sample import Dataset, Sample, make_dataset
from pcr_exp.datasets.seen import SeenFiles
from pcr_exp.errors import DatasetError

TEST_ANNOS = "cars_test_annos_withlabels.mat"
MAKES_OF_TWO_WORDS = ("AM General", "Aston Martin", "Land Rover")
SOURCE = (
    "Stanford Cars was published by the Stanford AI Lab (cars_train, cars_test, car_devkit and, separately, "
    "cars_test_annos_withlabels); Kaggle has copies."
)


@dataclass(kw_only=True, slots=True)
class CarsConfig(DatasetConfig):
    """Stanford Cars; labels model, make, is_corvette."""


@register("dataset", "cars", CarsConfig)
def read(config: CarsConfig) -> Dataset:
    """Read the official training set, and the official test set as val.

    Class indices follow the devkit (0-based), even for models without images.

    Raises:
        DatasetError: a file or folder is missing or unreadable, or a listed image is missing.
    """
    root = open_root(config.root, "cars", "cars_train/, cars_test/ and devkit/", SOURCE)
    devkit = need_dir(root, "devkit", SOURCE)
    meta = need_file(devkit, ["cars_meta.mat"], SOURCE)
    models = [str(name).strip() for name in _load(meta, "class_names")]
    test_annos = need_file(root, [TEST_ANNOS, f"devkit/{TEST_ANNOS}"], SOURCE)
    train_annos = need_file(devkit, ["cars_train_annos.mat"], SOURCE)
    seen = SeenFiles()
    for table in (meta, train_annos, test_annos):
        seen.table(table)
    make_names = sorted({make_of(model) for model in models})
    label_sets = [
        {"model": i, "make": make_names.index(make_of(model)), "is_corvette": int("Corvette" in model)}
        for i, model in enumerate(models)
    ]
    return make_dataset(
        config,
        _read_split(root, "cars_train", train_annos, label_sets, seen),
        {"model": models, "make": make_names, "is_corvette": ["not_corvette", "corvette"]},
        seen,
        val=_read_split(root, "cars_test", test_annos, label_sets, seen),
    )


def make_of(model: str) -> str:
    """Return the make from a class name such as `Aston Martin Virage Coupe 2012`."""
    for make in MAKES_OF_TWO_WORDS:
        if model.startswith(make + " "):
            return make
    return model.split()[0]


def _read_split(
    root: Path, name: str, annos: Path, label_sets: list[dict[str, int]], seen: SeenFiles
) -> list[Sample]:
    found = {path.name: path for path in seen.images(need_dir(root, name, SOURCE))}
    classes: dict[str, int] = {}
    for row in _load(annos, "annotations"):
        try:
            file, model = str(row["fname"]), int(row["class"])
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(f"{annos}: a row lacks fname and class ({error!r}). {SOURCE}") from error
        if not 1 <= model <= len(label_sets):
            raise DatasetError(f"{annos}: {file} has class {model}; wanted 1..{len(label_sets)}.")
        classes[file] = model
    return [
        Sample(f"{name}/{file}", found[file], dict(label_sets[classes[file] - 1]))
        for file in match_listed(classes.keys(), found, annos, seen)
    ]


def _load(path: Path, variable: str) -> list[Any]:
    import scipy.io

    try:
        value = scipy.io.loadmat(path, variable_names=[variable], simplify_cells=True)[variable]
    except KeyError as error:
        raise DatasetError(f"{path} has no variable {variable!r}. {SOURCE}") from error
    except Exception as error:  # scipy raises many kinds of errors for damaged files
        raise DatasetError(f"{path} is not a readable MATLAB file ({error}). {SOURCE}") from error
    # MATLAB does not distinguish a list of one element from the element.
    return [value] if isinstance(value, dict | str) else list(value)
