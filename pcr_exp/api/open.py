"""Open records by their address."""

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
    """Open the images of a split as a dataset for torch's `DataLoader`, which also has a loader of its own.

    Args:
        root: Folder or address (`s3://`, `gs://`, `http://`) of a split's records made by
            `pcr-exp prepare`: the folder that holds `pcr/` and `baseline/`, or one of these two. With
            `prepare`: photographs, as a folder of class folders or a table of paths and labels.
        scan: Which bytes to read: `group_1` to `group_10`, `all`, `baseline`, a policy's name, or a dict
            of its name and settings: `{"name": "schedule", "groups": [2, 10], "milestones": [30]}`.
        label: Name of the label to use, if the records have several.
        labels: Numbers to use as labels, by class name: a mapping or a function, such as `float` for
            class names that are numbers, or `multi_hot` for names that are sets, such as `cat;dog`.
        fields: Names of fields stored beside the images, such as `["mask", "boxes"]`. Each image then comes
            with a dict of its `label` and these fields, and the transform is called with image and fields.
            Masks and boxes are `torchvision.tv_tensors`, which torchvision.transforms.v2 crops with the
            image. Other fields are not read.
        transform: Called with every image: a transform of torchvision, albumentations or timm, or any
            function of uint8 [H, W, 3].
        images_as: Input type of the transform: `array`, `pil`, `tensor`, or `auto` (`WholeImageTransform`).
        decode: `scaled`, `unsmoothed` or `libjpeg`, as `loader.decode`.
        seed: Seed of random transforms: each image's seed follows from this, the epoch (`set_epoch`) and the
            image's index. None leaves randomness to the process, as torch's datasets do.
        max_pixels: Images with more pixels are not decoded.
        prepare: Local folder for records of photographs. The first call makes them, with a progress bar on
            stderr and the checks of `pcr-exp prepare`; later calls open them.
        split: With `prepare`, the split to open: train (the default), tune or val.

    Raises:
        ConfigError: an argument is invalid for these records.
        RecordError: there are no records, they are damaged or incomplete, or they lack the scan group.
        StorageError: the address cannot be opened.
        PcrExpError: photographs cannot be prepared.
    """
    require(max_pixels >= 1, "max_pixels", max_pixels, "at least 1")
    require(
        split is None or prepare is not None,
        "split",
        split,
        "None without prepare: open the split's own folder instead",
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
    """Return the folder of the records: the one named after their encoding, or the root itself."""
    reasons: list[MissingFileError | RefusedError] = []
    for folder in (encoding, ""):
        try:
            with opening():
                storage.size(f"{folder}/{INDEX_FILE}" if folder else INDEX_FILE)
            return folder
        except (MissingFileError, RefusedError) as error:
            reasons.append(error)  # without the right to list a bucket, missing files are refused
    for reason in reasons:
        if isinstance(reason, RefusedError):
            raise reason
    path = None if "://" in storage.root else Path(storage.root)
    found = [] if path is None else path.glob(f"*/{encoding}/{INDEX_FILE}")
    splits = sorted(str(index.parents[1]) for index in found)
    hint = f"It holds splits: open one of {', '.join(splits)}." if splits else str(reasons[0])
    if not splits and path is not None and is_photographs(path):
        line = f"pcr_exp.open({storage.root!r}, prepare='records/')"
        hint = f"These are photographs. Call {line}: the first call prepares records, later calls open them."
    raise RecordError(
        f"no records can be opened at {storage}: there is neither {encoding}/{INDEX_FILE} nor {INDEX_FILE}. "
        f"{hint} Wanted the folder of a split, which `python -m experiments.prepare` makes."
    )
