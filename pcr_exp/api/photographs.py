"""Make records of a folder or table of photographs, the first time that they are opened."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from pcr_exp.api.dataset import Labels
from pcr_exp.config.check import expanded
from pcr_exp.config.components import component
from pcr_exp.config.dataset import DatasetConfig, folder_name
from pcr_exp.config.records import FIELD_KINDS, RecordsConfig
from pcr_exp.datasets.seen import JPEG_SUFFIXES
from pcr_exp.datasets.table_file import SUFFIXES
from pcr_exp.errors import ConfigError, DatasetError
from pcr_exp.places import CONFIGS
from pcr_exp.records.index import INDEX_FILE
from pcr_exp.records.prepare import ensure_records, records_folder
from pcr_exp.system.progress import counting_bar

log = logging.getLogger(__name__)

_MAX_ENTRIES = 1000
"""Maximum number of entries of a folder that are checked for photographs."""


def prepared(
    address: str, root: str, *, label: str | None, labels: Labels, fields: Sequence[str] = ()
) -> Path:
    """Return the folder of the splits of records of photographs; the first call makes it, with a bar.

    Records and checks are those of `pcr-exp prepare dataset=folder dataset.root=... records.root=...`, or of
    `dataset=table`. As in training, later calls compare photographs by size and time.

    Args:
        address: Photographs: class folders, as for `dataset=folder`, or a table with the columns `path` and
            `label` (or the column that `label` names).
        root: Local folder of records, outside the photographs.
        label: Column of a table that holds the labels.
        labels: As in `pcr_exp.open`; `float` and `multi_hot` determine how cells of a table are read.
        fields: Kinds of fields, each in the table's column of the same name. For other tables, use the
            command.

    Raises:
        ConfigError: `root` or `address` is not local, `root` lies inside the photographs, `address` already
            holds records, or there are no such fields.
        DatasetError: there is nothing at `address`.
        PcrExpError: as `prepare_records` raises it.
    """
    photographs, root = Path(address), expanded(root)
    if "://" in root or "://" in address:
        raise ConfigError(f"prepare={root!r}: wanted a local folder, for photographs in a local folder.")
    if not photographs.exists():
        raise DatasetError(
            f"root={address!r}: {photographs.absolute()} does not exist. Wanted a folder of class folders, "
            f"or a table of paths and labels ({', '.join(SUFFIXES)})."
        )
    home = photographs if photographs.is_dir() else photographs.parent
    if photographs.is_dir() and Path(root).resolve().is_relative_to(home.resolve()):
        raise ConfigError(
            f"prepare={root!r}: wanted a folder outside of {photographs}, which is not changed."
        )
    if any((photographs / folder / INDEX_FILE).exists() for folder in ("", "pcr", "train/pcr")):
        raise ConfigError(f"prepare={root!r}: {photographs} holds records already. Open it without prepare.")
    dataset = _dataset(photographs, label, labels, fields)
    records = RecordsConfig(root=root, num_workers=min(8, os.cpu_count() or 1), fields=[*fields])
    with counting_bar("records") as tell:
        ensure_records(dataset, records, progress=tell)
    return Path(root) / records_folder(dataset, records)


def is_photographs(path: Path) -> bool:
    """Whether the path is a table, or a folder with JPEG files in it or in a subfolder."""
    if path.is_file():
        return path.name.lower().endswith(SUFFIXES)
    if not path.is_dir():
        return False
    folders = [path]
    with os.scandir(path) as entries:
        for entry, _ in zip(entries, range(_MAX_ENTRIES), strict=False):
            if entry.name.lower().endswith(JPEG_SUFFIXES):
                return True
            if entry.is_dir() and not entry.name.startswith("."):
                folders.append(Path(entry.path))
    return any(_holds_jpegs(folder, deeper=folder.name in ("train", "val")) for folder in folders[1:])


def _holds_jpegs(folder: Path, *, deeper: bool) -> bool:
    with os.scandir(folder) as entries:
        for entry, _ in zip(entries, range(_MAX_ENTRIES), strict=False):
            if entry.name.lower().endswith(JPEG_SUFFIXES):
                return True
            if deeper and entry.is_dir() and _holds_jpegs(Path(entry.path), deeper=False):
                return True
    return False


def _dataset(photographs: Path, label: str | None, labels: Labels, beside: Sequence[str]) -> DatasetConfig:
    """Return the dataset settings that the command would use."""
    is_table = not photographs.is_dir()
    kind = "table" if is_table else "folder"
    schema: Any = component("dataset", kind).schema
    known = {field.name for field in fields(schema)}
    written: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / "dataset" / f"{kind}.yaml"), resolve=False)
    plain = (int, float, type(None))
    given: dict[str, Any] = {
        name: value for name, value in written.items() if name in known and isinstance(value, plain)
    }
    given["label"] = label or written["label"]
    if is_table:
        from pcr_exp.datasets.table import ColumnsConfig

        columns: dict[str, Any] = {name: name for name in beside if name in FIELD_KINDS}
        cells = "several" if labels == "multi_hot" else "number" if labels is float else "class"
        given |= {"table": str(photographs), "columns": ColumnsConfig(kind=cells, **columns)}
        given["name"] = folder_name(None, str(photographs))
    else:
        given |= {"root": str(photographs), "name": folder_name(str(photographs))}
    dataset: DatasetConfig = schema(**given)
    return dataset
