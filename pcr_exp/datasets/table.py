"""A table of images, with a row for each: its path, labels, split and group. Images may be anywhere."""

from __future__ import annotations

import math
import os
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pcr_exp.config.check import PATH, Bound, check_fields, each, one_of, require
from pcr_exp.config.components import register
from pcr_exp.config.dataset import SEPARATOR, OwnSplitConfig
from pcr_exp.config.records import FIELD_KINDS
from pcr_exp.datasets.layout import open_root
from pcr_exp.datasets.sample import SPLITS, Dataset, LabelledImages, Sample, make_dataset, make_images
from pcr_exp.datasets.seen import SeenFiles, some
from pcr_exp.datasets.table_file import read_columns
from pcr_exp.errors import DatasetError

SOURCE = "Give a table of your own images (CSV, JSON lines, Parquet): dataset.table=/path/to/labels.csv."
_OURS = each(lambda split: split in SPLITS, f"for each word one of {', '.join(SPLITS)}")
_REMEDY = (
    "Name the columns: dataset.columns.path=<column of paths> dataset.label=<column of labels>, and "
    "dataset.columns.split, .group, .labels if there are any."
)
_MISSING = "no such file"
_NUM_NAMED = 20
"""Maximum number of rows that an error names."""


@dataclass(kw_only=True, slots=True)
class ColumnsConfig:
    """Names of a table's columns. That of the label is `dataset.label`."""

    path: str = "path"
    """Column of image paths: relative to dataset.root, or absolute if they begin with /."""
    kind: Annotated[str, one_of("class", "several", "number")] = "class"
    """Kind of the column `dataset.label`. `class`: one of several classes. `several`: any number of classes,
    for task=multilabel. `number`: a real number, for task=regression."""
    separator: Annotated[str, Bound(bool, "a text, such as ;")] = SEPARATOR
    """Separates the classes in a cell of kind `several`. In JSON lines and Parquet, a cell may be a list."""
    labels: list[str] = field(default_factory=list)
    """Further class columns to store in records, so that another dataset.label needs no other records."""
    split: str | None = None
    """Column that assigns images to train, tune and val (null: split by a hash)."""
    splits: Annotated[dict[str, str], _OURS] = field(default_factory=dict)
    """Meaning of other words in that column: `+dataset.columns.splits.test=val`."""
    group: str | None = None
    """Column of groups that belong together, such as a patient; see `dataset.group_by` of dataset=folder."""
    mask: str | None = None
    """Column of masks: PNG files with one number per pixel. Of this and the next four columns, records store
    those that `records.fields` names."""
    boxes: str | None = None
    """Column of boxes: a JSON list of [left, top, right, bottom] in px, and a class if there are any, or a
    file of it. An empty cell means no boxes."""
    text: str | None = None
    """Column of texts, which may be empty."""
    json: str | None = None
    """Column of JSON values, or of JSON files."""
    array: str | None = None
    """Column of .npy files, as written by `numpy.save`."""

    def __post_init__(self) -> None:
        check_fields(self, "dataset.columns")

    @property
    def fields(self) -> dict[str, str]:
        """Columns of fields, by kind, which is also the field's name."""
        columns = {kind: getattr(self, kind) for kind in FIELD_KINDS}
        return {kind: column for kind, column in columns.items() if column is not None}


@dataclass(kw_only=True, slots=True)
class TableConfig(OwnSplitConfig):
    """A table with a row for each image: its path and its label, in the column `dataset.label`.

    `val_fraction` of the images is held out, unless a column assigns them to splits.
    """

    table: Annotated[str | None, PATH] = None
    """File of the table: CSV, whose first line names the columns; .jsonl; or .parquet, which needs
    pyarrow."""
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    on_error: Annotated[str, one_of("fail", "skip")] = "fail"
    """As `records.on_error`, from which it is set. `fail` stops at rows without an image or label, or that
    repeat an earlier row, and names them; `skip` leaves them out and lists them in rejected.csv."""

    def __post_init__(self) -> None:
        OwnSplitConfig.__post_init__(self)
        if self.table is not None and self.root is None:
            self.root = str(Path(self.table).parent)
        different = self.columns.path != self.label
        require(different, "dataset.columns.path", self.columns.path, "another column than dataset.label")


@register("dataset", "table", TableConfig)
def read(config: TableConfig) -> Dataset:
    """Read the images of the table, split by a column or by `split_seed` and their ids.

    Classes are the label's values, in alphabetical order. Ids are the paths in the table. For the kinds
    `several` and `number`, every set and every number becomes a class (FORMAT.md).

    Raises:
        DatasetError: the table or a column is missing; or a row lacks its image or a cell, or is repeated,
            and `on_error` is `fail`.
    """
    samples, classes, seen, splits = _samples(config)
    if config.columns.split is None:
        return make_dataset(config, samples, classes, seen, values=_values(config), fields=_kinds(config))
    divided = {split: [s for s in samples if splits[s.id] == split] for split in SPLITS}
    groups = {split: {sample.group for sample in members} for split, members in divided.items()}
    both = (groups["train"] | groups["tune"]) & groups["val"] - {None}
    if both and not config.folds:
        seen.remarks.append(
            f"{len(both)} groups of dataset.columns.group={config.columns.group} have images that are "
            f"assigned to val and others that are not ({some(sorted(map(str, both)))}), so results on val "
            "are too good. Correct the table, or leave out dataset.columns.split: images are then split by "
            "group."
        )
    return make_dataset(
        config,
        divided["train"],
        classes,
        seen,
        val=divided["val"] or None,
        tune=divided["tune"] or None,
        values=_values(config),
        fields=_kinds(config),
    )


@register("dataset.images", "table", TableConfig)
def read_images(config: TableConfig) -> LabelledImages:
    """Read the same images without splits. Raises as `read` does."""
    samples, classes, seen, _ = _samples(config)
    return make_images(config, samples, classes, seen)


def _values(config: TableConfig) -> tuple[str, ...]:
    """Return the labels whose values need not occur in every split, as they are not classes."""
    return () if config.columns.kind == "class" else (config.label,)


def _kinds(config: TableConfig) -> dict[str, str]:
    """Return field name -> kind, which are equal."""
    return {kind: kind for kind in config.columns.fields}


def _samples(config: TableConfig) -> tuple[list[Sample], dict[str, list[str]], SeenFiles, dict[str, str]]:
    """Return samples, classes by label, files that were read, and splits by id, if a column assigns them."""
    if config.table is None:
        raise DatasetError(f"dataset.table is null: table wants a file of paths and labels. {SOURCE}")
    table, seen, columns = Path(config.table), SeenFiles(), config.columns
    if not table.is_file():
        what = "is a folder" if table.is_dir() else "does not exist"
        raise DatasetError(f"dataset.table={config.table}: {table.absolute()} {what}. {SOURCE}")
    root = open_root(config.root, "table", "the images", "Leave it out if they are next to the table.")
    labels = list(dict.fromkeys([config.label, *columns.labels]))
    more = [name for name in (columns.split, columns.group) if name is not None]
    beside = columns.fields
    words = [*labels, *more]  # a label may be the split column, too
    named = [columns.path, *words, *beside.values()]
    cells, first = read_columns(seen.table(table), named, _REMEDY, as_json=beside.values())
    fields: dict[str, dict[str, Path | bytes]] = {}
    rows: dict[str, dict[str, str]] = {}
    files: set[str] = set()
    for number, (path, *found) in enumerate(zip(*cells, strict=True), start=first):
        row = dict(zip(words, found, strict=False))
        beside_it = zip(beside, found[len(words) :], strict=True)
        sources = {kind: _source(kind, cell, root) for kind, cell in beside_it}
        reason = _why_unfit(path, row, files, root, config) or _why_no_field(sources)
        if reason:
            seen.refused[f"row {number}" + (f" ({path})" if path else "")] = reason
            if reason == _MISSING:
                seen.missing(root / path)
            for source in sources.values():
                if isinstance(source, Path) and not _is_file(source):
                    seen.missing(source)
        else:
            files.add(_file_of(path, root))
            rows[path] = {name: _name(cell, name, config) for name, cell in row.items()}
            fields[path] = {kind: source for kind, source in sources.items() if source is not None}
    _settle(config, table, len(rows), seen)
    classes = {label: sorted({row[label] for row in rows.values()}) for label in labels}
    numbers = {label: {name: i for i, name in enumerate(names)} for label, names in classes.items()}
    samples = [
        Sample(
            path,
            root / path,
            {label: numbers[label][row[label]] for label in labels},
            group=None if columns.group is None else row[columns.group],
            fields=fields[path],
        )
        for path, row in rows.items()
    ]
    seen.num_images = len(samples)
    splits = {} if columns.split is None else {path: row[columns.split] for path, row in rows.items()}
    return samples, classes, seen, _known(splits, table, config)


def _why_unfit(
    path: Any, row: dict[str, Any], before: Container[str], root: Path, config: TableConfig
) -> str:
    """Return why a row cannot be used; empty if it can."""
    if not path or not isinstance(path, str):
        return f"no {config.columns.path}"
    for name, cell in row.items():
        of_label, kind = name == config.label, config.columns.kind
        if of_label and kind == "several":
            if any(SEPARATOR in member for member in _members(cell, config)):
                return f"{name}={cell!r}: a class name contains {SEPARATOR!r}, which separates classes"
        elif not cell or not isinstance(cell, str):
            return f"no {name}" if not cell else f"{name}={cell!r}: a list (see dataset.columns.kind=several)"
        elif of_label and kind == "number" and not _is_finite(cell):
            return f"{name}={cell!r}: not a finite number"
    if _file_of(path, root) in before:
        return "listed twice; the first row counts"
    return "" if _is_file(root / path) else _MISSING


def _file_of(path: str, root: Path) -> str:
    """Return the file that a path names, however it is spelled: `a.jpg`, `./a.jpg`, `/all/of/it/a.jpg`."""
    return os.path.abspath(root / path)  # noqa: PTH100 (a Path keeps `..`)


def _source(kind: str, cell: str, root: Path) -> Path | bytes | None:
    """Return a field's file, or its value if the cell holds it (text, boxes, JSON); None if it is empty."""
    is_here = kind == "text" or (kind in ("boxes", "json") and cell[:1] in ("[", "{"))
    if is_here or (kind == "boxes" and not cell):
        return cell.encode(errors="surrogatepass")
    return root / cell if cell else None


def _why_no_field(sources: dict[str, Path | bytes | None]) -> str:
    """Return which field a row lacks; empty if it has them all."""
    for kind, source in sources.items():
        if source is None:
            return f"no {kind}"
        if isinstance(source, bytes) and not _is_text(source):
            return f"{kind} is not Unicode text: it has half of a character"
        if isinstance(source, Path) and not _is_file(source):
            return f"no such {kind}: {source}"
    return ""


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_file(path: Path) -> bool:
    """Return whether a path is a file; False also for what cannot be a path, such as a long caption."""
    try:
        return path.is_file()
    except OSError:
        return False


def _name(cell: str | list[str], name: str, config: TableConfig) -> str:
    """Return a cell as a class name; for kind `several`, its names in alphabetical order."""
    if name == config.label and config.columns.kind == "several":
        return SEPARATOR.join(sorted(set(_members(cell, config))))
    return str(cell)


def _members(cell: str | list[str], config: TableConfig) -> list[str]:
    names = cell.split(config.columns.separator) if isinstance(cell, str) else cell
    return [name.strip() for name in names if name.strip()]


def _is_finite(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _settle(config: TableConfig, table: Path, num_fit: int, seen: SeenFiles) -> None:
    """Raise DatasetError for rows that cannot be used, unless they are to be left out."""
    if not num_fit and not seen.refused:
        raise DatasetError(f"{table} lists no image. {SOURCE}")
    if seen.refused and (config.on_error == "fail" or not num_fit):
        named = some((f"{row}: {why}" for row, why in seen.refused.items()), limit=_NUM_NAMED)
        raise DatasetError(
            f"{table}, with images in {config.root}: {len(seen.refused)} of {len(seen.refused) + num_fit} "
            f"rows cannot be used. {named}. Correct them, or dataset.root; or leave them out with "
            "records.on_error=skip, which lists them all in rejected.csv."
        )


def _known(splits: dict[str, str], table: Path, config: TableConfig) -> dict[str, str]:
    """Translate each image's split to our names. Raises DatasetError for an unknown word."""
    meant = {split: split for split in SPLITS} | config.columns.splits
    if unknown := sorted(set(splits.values()) - meant.keys()):
        raise DatasetError(
            f"{table}: {config.columns.split} is {some(unknown)}; wanted {', '.join(SPLITS)}. Say what other "
            f"words mean: +dataset.columns.splits.{unknown[0]}=val"
        )
    return {path: meant[word] for path, word in splits.items()}
