"""A table of images: a CSV file with a row for each, its path and its label. The images lie anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pcr_exp.config.check import PATH, require
from pcr_exp.config.components import register
from pcr_exp.config.dataset import OwnSplitConfig
from pcr_exp.datasets.layout import open_root
from pcr_exp.datasets.sample import Dataset, LabelledImages, Sample, make_dataset, make_images
from pcr_exp.datasets.seen import Looked, some
from pcr_exp.errors import DatasetError

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "Give a CSV file of your own images: dataset.table=/path/to/labels.csv."


@dataclass(kw_only=True, slots=True)
class ColumnsConfig:
    """What the columns of a table are called, but for the label's, which is `dataset.label`."""

    path: str = "path"
    """Where each image lies: below dataset.root, or anywhere if it begins with /."""


@dataclass(kw_only=True, slots=True)
class TableConfig(OwnSplitConfig):
    """A CSV file with a row for each image: its path and its label, in the column `dataset.label`.

    `val_fraction` of the images is held out.
    """

    table: Annotated[str | None, PATH] = None
    """The file, whose first line names the columns."""
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)

    def __post_init__(self) -> None:
        OwnSplitConfig.__post_init__(self)
        if self.table is not None and self.root is None:
            self.root = str(Path(self.table).parent)
        different = self.columns.path != self.label
        require(different, "dataset.columns.path", self.columns.path, "another column than dataset.label")


@register("dataset", "table", TableConfig)
def read(config: TableConfig) -> Dataset:
    """The images of the table, of which `val_fraction` is held out, by `split_seed` and their ids.

    Classes are the label's values, in alphabetical order; ids are paths as the table has them.

    Raises:
        DatasetError: the table or an image is missing, a column is not there, or a row lacks its path or
            label or is there twice.
    """
    samples, classes, looked = _samples(config)
    return make_dataset(config, samples, classes, looked)


@register("dataset.images", "table", TableConfig)
def read_images(config: TableConfig) -> LabelledImages:
    """The same, undivided. Raises as `read` does."""
    return make_images(config, *_samples(config))


def _samples(config: TableConfig) -> tuple[list[Sample], dict[str, list[str]], Looked]:
    if config.table is None:
        raise DatasetError(f"dataset.table is null: table wants a file of paths and labels. {SOURCE}")
    table, looked = Path(config.table), Looked()
    if not table.is_file():
        what = "is a folder" if table.is_dir() else "does not exist"
        raise DatasetError(f"dataset.table={config.table}: {table.absolute()} {what}. {SOURCE}")
    root = open_root(config.root, "table", "the images", "Leave it out if they lie beside the table.")
    rows = _read_rows(looked.table(table), config.columns.path, config.label)
    names = sorted(set(rows.values()))
    numbers = {name: number for number, name in enumerate(names)}
    samples = [Sample(path, root / path, {config.label: numbers[label]}) for path, label in rows.items()]
    if missing := [sample.id for sample in samples if not sample.path.is_file()]:
        raise DatasetError(
            f"{table}: {len(missing)} of {len(samples)} images are not in {root}: {some(missing)}. Wanted "
            "paths below dataset.root; correct it, or the table."
        )
    looked.num_images = len(samples)
    return samples, {config.label: names}, looked


def _read_rows(table: Path, path_column: str, label_column: str) -> dict[str, str]:
    """By path, the label of each row."""
    frame = _read_csv(table)
    lacking = [name for name in (path_column, label_column) if name not in frame.columns]
    if lacking:
        raise DatasetError(
            f"{table} has no column {lacking[0]!r} but {', '.join(map(str, frame.columns))}. Name the "
            "columns: dataset.columns.path=<that of the paths> dataset.label=<that of the labels>."
        )
    rows: dict[str, str] = {}
    for line, (path, label) in enumerate(zip(frame[path_column], frame[label_column], strict=True), start=2):
        if not path or not label:
            raise DatasetError(
                f"{table}, row {line}: {path_column}={path!r}, {label_column}={label!r}; wanted both."
            )
        if path in rows:
            raise DatasetError(f"{table}, row {line}: {path} is listed twice.")
        rows[path] = label
    if not rows:
        raise DatasetError(f"{table} lists no image. {SOURCE}")
    return rows


def _read_csv(table: Path) -> pd.DataFrame:
    """Every cell as the text that stands there."""
    import pandas as pd

    as_text: dict[str, Any] = {"dtype": str, "keep_default_na": False, "encoding": "utf-8-sig"}
    try:
        return pd.read_csv(table, **as_text)
    except (OSError, ValueError) as error:  # of which pandas' own are kinds
        raise DatasetError(f"{table} is no readable CSV file ({error}). {SOURCE}") from error
