"""Encode a dataset's JPEG files as records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

from pcr_exp.cli.dry_run import NOT_KNOWN, WORDS, Planned, encode_seconds, index_of, num_in_files
from pcr_exp.cli.terminal import track_files
from pcr_exp.config.commands import PrepareConfig
from pcr_exp.datasets.photos import PhotosConfig
from pcr_exp.datasets.sample import open_dataset
from pcr_exp.errors import RecordError, printable
from pcr_exp.images.codec import find_codec
from pcr_exp.records.bucket import check_bucket, prepare_in_bucket
from pcr_exp.records.encode import EncodeReport
from pcr_exp.records.fingerprint import sample_bytes
from pcr_exp.records.prepare import check_records, prepare_records, read_remarks
from pcr_exp.system import MIB
from pcr_exp.system.atomic import make_folder
from pcr_exp.system.progress import counting_bar
from pcr_exp.system.words import counted

_SIZED = 500
"""Number of files from which the mean file size is estimated."""


def prepare(config: PrepareConfig) -> str:
    """Encode all splits in both encodings, or compare images with records. Return one word.

    With `dataset.num_folds` but no `dataset.fold`, prepare all folds; only the first is transcoded.
    """
    if config.dataset.folds and config.dataset.fold is None:
        for fold in config.dataset.folds:
            of_fold = replace(config.dataset, fold=fold)
            done = prepare(replace(config, dataset=of_fold, out=f"{config.out}/fold_{fold}"))
        return done
    in_bucket = "://" in config.records.root
    if config.check != "none":
        check = check_bucket if in_bucket else check_records
        with counting_bar("images compared", shown=config.check == "content") as tell:
            found = check(config.dataset, config.records, contents=config.check == "content", progress=tell)
        print(found)
        return "checked"
    reports: dict[str, EncodeReport] = {}
    with counting_bar("records") as tell:
        prepare_there = prepare_in_bucket if in_bucket else prepare_records
        folder = prepare_there(config.dataset, config.records, progress=tell, on_report=reports.__setitem__)
    for split, report in reports.items():
        print(f"{split}: {describe(report)}")
    if config.tracking.name != "none":
        track(config, reports)
    for remark in read_remarks(folder):
        print(printable(remark))
    print(f"{config.records.root}/{folder.name}" if in_bucket else folder)
    return "finished"


def track(config: PrepareConfig, reports: Mapping[str, EncodeReport]) -> None:
    """Write encoded.csv, with a row per split and encoding, and log it to the tracker."""
    import pandas as pd

    rows = [
        {"split": split, "encoding": encoding, "num_bytes": num_bytes, **counts_of(report)}
        for split, report in reports.items()
        for encoding, num_bytes in report.num_bytes.items()
    ]
    out = Path(config.out)
    make_folder(out)
    pd.DataFrame(rows).to_csv(out / "encoded.csv", index=False)
    name = f"prepare-{config.dataset.name}"
    track_files(config.tracking, name, out, asdict(config), [out / "encoded.csv"])


def counts_of(report: EncodeReport) -> dict[str, Any]:
    """Return the counts and seconds of a split, without the bytes, which are per encoding."""
    return {name: value for name, value in asdict(report).items() if name != "num_bytes"}


def describe(report: EncodeReport) -> str:
    """Describe an encode in one line."""
    parts = [f"{counted(report.num_images, 'image')} in {counted(report.num_records, 'record')}"]
    parts += [f"{name} {num_bytes / MIB:.1f} MiB" for name, num_bytes in report.num_bytes.items()]
    if report.num_rejected:
        parts.append(f"{report.num_rejected} rejected, with reasons in rejected.csv")
    if report.num_reused:
        parts.append(f"{report.num_reused} copied from other records, not transcoded again")
    if report.num_turned:
        parts.append(f"{report.num_turned} with an EXIF rotation, which is not applied to the stored pixels")
    return ", ".join(parts) + f"; {report.encode_s:.1f} s"


def plan(config: PrepareConfig) -> Planned:
    """Plan both encodings of all splits; records that exist already need no work."""
    folds = config.dataset.folds
    if folds and config.dataset.fold is None:  # only the first is transcoded
        first = plan(replace(config, dataset=replace(config.dataset, fold=folds[0])))
        bytes_each = first.amounts.get("disk_bytes")
        amounts = {} if bytes_each is None else {"disk_bytes": bytes_each * len(folds)}
        return Planned([counted(len(folds), "fold"), *first.facts], {**first.amounts, **amounts})
    facts = [f"records of {config.dataset.name} below {config.records.root}"]
    if _are_made(config):
        return Planned([*facts, "records exist already: images are compared with them"])
    if isinstance(config.dataset, PhotosConfig):
        return Planned([*facts, f"{counted(num_in_files(config.dataset), 'image')}, made first", NOT_KNOWN])
    samples = list(chain.from_iterable(open_dataset(config.dataset).splits.values()))
    codec = find_codec(config.records.codec_id, "records.codec")
    seconds = encode_seconds(samples, codec, config.records.max_pixels) / config.records.num_workers
    some = samples[:_SIZED]
    each_bytes = sum(sample_bytes(sample) or 0 for sample in some) / len(some)
    facts.append(f"{counted(len(samples), 'image')}, twice their size on disk; encoding {WORDS}")
    return Planned(facts, {"seconds": seconds * len(samples), "disk_bytes": 2 * each_bytes * len(samples)})


def _are_made(config: PrepareConfig) -> bool:
    try:
        return index_of(config.dataset, config.records, "train", "baseline") is not None
    except RecordError:  # a bucket that has no records yet
        if "://" in config.records.root:
            return False
        raise
