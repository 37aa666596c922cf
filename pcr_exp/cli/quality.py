"""Measure MS-SSIM, SSIM and bytes per scan group; draw them, or one image as its scans arrive."""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.one_image import read_jpeg, write_sample_image
from pcr_exp.analysis.quality import (
    SUMMARY_FILE,
    load_quality,
    save_decode_modes,
    save_quality_figures,
    summary_markdown,
    write_quality,
)
from pcr_exp.cli.dry_run import NOT_KNOWN, WORDS, Planned, index_of, num_in_files, quality_seconds
from pcr_exp.cli.terminal import show, track_files
from pcr_exp.config.measuring import QualityConfig
from pcr_exp.measuring.quality import measure_crops, measure_quality, summarise_crops
from pcr_exp.records.prepare import ensure_records, records_folder
from pcr_exp.records.reader import RecordSet
from pcr_exp.runs.study_folder import claim_results
from pcr_exp.storage.open import open_root
from pcr_exp.system.atomic import write_atomic
from pcr_exp.system.progress import counting_bar
from pcr_exp.system.words import counted


def quality(config: QualityConfig) -> str:
    """Measure one split of one dataset and draw it, or show one image. Return "finished"."""
    if config.image is not None:
        return show_image(config, config.image)
    records = open_records(config)
    with claim_results(config, [config.dataset.name, config.split], records.index.fingerprint) as out:
        files = measure(records, config, out)
    track_files(config.tracking, f"quality-{out.name}", out, asdict(config), files, lines(files[0]))
    show(files, summary_markdown(pd.read_csv(files[0]), records.index.dataset, config.split))
    return "finished"


def show_image(config: QualityConfig, name: str) -> str:
    """Draw one image at the scan groups. Return "finished"."""
    key = hashlib.sha256(read_jpeg(name)).hexdigest()[:16]
    with claim_results(config, [Path(name).stem], key) as out:
        show(write_sample_image(name, sorted(set(config.groups)), out))
    return "finished"


def measure(records: RecordSet, config: QualityConfig, out: Path) -> list[Path]:
    """Write rows, summary and figures of a split, and of its crops if requested. Return the files."""
    with counting_bar("quality") as tell:
        rows = measure_quality(records, config.groups, config.max_images, config.num_workers, progress=tell)
    settings = {
        "images": records.index.images,
        "decode": "libjpeg",  # of whole images, which are not resized
        "antialias": False,
        "num_scales": sorted({int(num) for num in rows["num_scales"]}),
        "crop_size_px": config.crop_size_px,
    }
    write_quality(out, rows, records.index, settings)
    files = [out / SUMMARY_FILE, *save_quality_figures(load_quality(out), out, out)]
    return [*files, *(measure_modes(records, config, out) if config.decodes else [])]


def lines(summary: Path) -> Iterator[dict[str, Any]]:
    """Yield a row of kind `quality` per scan group, with the means that a tracker plots over the group."""
    for row in pd.read_csv(summary).to_dict("records"):
        means = {name: row[f"{name}_mean"] for name in ("ms_ssim", "ssim", "bytes")}
        yield {"kind": "quality", "group": row["group"], **means}


def measure_modes(records: RecordSet, config: QualityConfig, out: Path) -> list[Path]:
    """Measure the crops that training would see in each decode mode. Return the summary and figures."""
    with counting_bar("crops") as tell:
        crops = measure_crops(
            records, config.groups, config.decodes, config.max_images, config.crop_size_px, progress=tell
        )
    summary = out / "decode_modes_summary.csv"
    write_atomic(summary, [summarise_crops(crops).to_csv(index=False).encode()])
    crops.insert(0, "dataset", records.index.dataset)
    return [summary, *save_decode_modes(crops, out, out)]


def open_records(config: QualityConfig) -> RecordSet:
    """Open the progressive records of the split; missing ones are made first, if allowed and local."""
    with counting_bar("records") as tell:
        ensure_records(config.dataset, config.records, progress=tell)
    folder = records_folder(config.dataset, config.records)
    storage = open_root(config.records)
    return RecordSet(storage, f"{folder}/{config.split}/pcr", max_pixels=config.records.max_pixels)


def plan(config: QualityConfig) -> Planned:
    """Plan the MS-SSIM of images x groups."""
    if config.image is not None:
        return Planned([f"{config.image} at groups {config.groups}, into {config.place}"])
    index = index_of(config.dataset, config.records, config.split, "pcr")
    there = index.num_samples if index else num_in_files(config.dataset, [config.split])
    num = min(config.max_images, there)
    at = counted(len(config.groups), "group")
    facts = [f"{num:,} of {counted(there, 'image')} of {config.dataset.name} at {at}"]
    if index is None:
        return Planned([*facts, "records are not made yet", NOT_KNOWN])
    folder = f"{records_folder(config.dataset, config.records)}/{config.split}/pcr"
    records = RecordSet(open_root(config.records), folder, max_pixels=config.records.max_pixels)
    seconds = quality_seconds(records, config.groups) * num / config.num_workers
    return Planned([*facts, f"one image {WORDS}"], {"seconds": seconds})
