"""Opening records by their address."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pcr_exp.api.dataset import Labels, RecordDataset, StaticDataset
from pcr_exp.api.photographs import is_photographs, prepared
from pcr_exp.api.scan import ALL, Scan, encoding_of, is_static
from pcr_exp.config.check import expanded, require
from pcr_exp.config.records import MAX_PIXELS
from pcr_exp.datasets.sample import SPLITS
from pcr_exp.errors import MissingFileError, RecordError, RefusedError
from pcr_exp.records.index import INDEX_FILE
from pcr_exp.records.presence import require_files
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.open import PerProcessStorage
from pcr_exp.storage.protocol import opening


def open(
    root: str | os.PathLike[str],
    scan: Scan = ALL,
    *,
    label: str | None = None,
    labels: Labels = None,
    fields: Sequence[str] = (),
    transform: Callable[..., Any] | None = None,
    images_as: str = "auto",
    decode: str = "scaled",
    seed: int | None = None,
    max_pixels: int = MAX_PIXELS,
    prepare: str | os.PathLike[str] | None = None,
    split: str | None = None,
) -> RecordDataset:
    """The images of a split, as a dataset that torch's `DataLoader` takes, and that has a loader of its own.

    Args:
        root: Folder or address (`s3://`, `gs://`, `http://`) of a split's records, as
            `pcr-exp prepare` makes them: the one that holds `pcr/` and `baseline/`, or one of these. With
            `prepare`, photographs: a folder of class folders, or a table of paths and labels.
        scan: Which bytes are read: `group_1` to `group_10`, `all`, `baseline`, or a policy's name, or a dict
            of its name and settings: `{"name": "schedule", "groups": [2, 10], "milestones": [30]}`.
        label: Which label, if the records have several.
        labels: By class name, the numbers to give as labels: a mapping or a function, such as `float` of
            class names that are numbers; or `multi_hot`, of names that are sets such as `cat;dog`.
        fields: Names of what travels beside the images, such as `["mask", "boxes"]`. Each image then comes
            with a dict of its `label` and these, and the transform is called with image and fields: masks and
            boxes as `torchvision.tv_tensors`, which torchvision.transforms.v2 crops alike. Of other fields
            not a byte is read.
        transform: Called with every image; torchvision's, albumentations', timm's, or any function of uint8
            [H, W, 3].
        images_as: What the transform takes: `array`, `pil`, `tensor`, or `auto` (`WholeImageTransform`).
        decode: `scaled`, `unsmoothed` or `libjpeg`, as `loader.decode`.
        seed: Seeds what is random in the transform, of each image from this, the epoch (`set_epoch`) and its
            index; None leaves that to the process, as torch's datasets do.
        max_pixels: Images of more are not decoded.
        prepare: A local folder for records of photographs. They are made once, with a bar on stderr and the
            checks of `pcr-exp prepare`, and opened the next time.
        split: With `prepare`, which of train (the default), tune and val is opened.

    Raises:
        ConfigError: an argument cannot work with these records.
        RecordError: there are no records, they are damaged or not all there, or they lack the scan group.
        StorageError: the address cannot be opened.
        PcrExpError: photographs cannot be prepared.
    """
    require(max_pixels >= 1, "max_pixels", max_pixels, "at least 1")
    require(
        split is None or prepare is not None, "split", split, "None without prepare: a split has a folder"
    )
    require(split in (None, *SPLITS), "split", split, " or ".join(SPLITS))
    require(not isinstance(fields, str), "fields", fields, f"a list of names: [{fields!r}]")
    address = expanded(os.fspath(root))
    if prepare is not None:
        made = prepared(address, os.fspath(prepare), label=label, labels=labels, fields=fields)
        address = str(made / (split or "train"))
    storage = PerProcessStorage(address)
    folder = _find_folder(storage, encoding_of(scan))
    records = RecordSet(storage, folder, max_pixels=max_pixels)
    require_files(records)
    kind = StaticDataset if seed is None and is_static(scan) else RecordDataset
    opened = kind(
        records,
        scan,
        label=label,
        labels=labels,
        transform=transform,
        images_as=images_as,
        decode=decode,
        seed=seed,
        fields=fields,
    )
    if opened.fields is not None:
        require_files(opened.fields.records)
    return opened


def _find_folder(storage: PerProcessStorage, encoding: str) -> str:
    """Where in the storage the records are: in a folder of their encoding's name, or right there."""
    reasons: list[MissingFileError | RefusedError] = []
    for folder in (encoding, ""):
        try:
            with opening():
                storage.size(f"{folder}/{INDEX_FILE}" if folder else INDEX_FILE)
            return folder
        except (MissingFileError, RefusedError) as error:
            reasons.append(error)  # who may not list a bucket is refused what is not there
    for reason in reasons:
        if isinstance(reason, RefusedError):
            raise reason
    path = None if "://" in storage.root else Path(storage.root)
    found = [] if path is None else path.glob(f"*/{encoding}/{INDEX_FILE}")
    splits = sorted(str(index.parents[1]) for index in found)
    hint = f"It holds splits: open one of {', '.join(splits)}." if splits else str(reasons[0])
    if not splits and path is not None and is_photographs(path):
        line = f"pcr_exp.open({storage.root!r}, prepare='records/')"
        hint = f"These are photographs. Prepare them once, and open what is there the next time: {line}."
    raise RecordError(
        f"no records can be opened at {storage}: there is neither {encoding}/{INDEX_FILE} nor {INDEX_FILE}. "
        f"{hint} Wanted the folder of a split, which `python -m experiments.prepare` makes."
    )
