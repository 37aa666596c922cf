"""Fidelity of a run's training images: MS-SSIM and bytes at each scan group that it may read.

It is measured on training crops, at the run's image size and with its decoder. Whole images, another dataset
or another decoder would say little about them. Figures plot accuracy against this quality.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pcr_exp.config.commands import TrainConfig
from pcr_exp.errors import StorageError
from pcr_exp.images.codec import Pixels
from pcr_exp.images.ms_ssim import WINDOW_PX, ms_ssim, scales_that_fit
from pcr_exp.loading.fixed_sample import FixedSample
from pcr_exp.loading.transform import train_transform
from pcr_exp.numerics import NUMERICS
from pcr_exp.policies.consensus import open_consensus
from pcr_exp.policies.policy import PolicyInputs, open_policy
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.prepare import records_folder
from pcr_exp.records.reader import RecordSet
from pcr_exp.runs.data import open_data, page_cache_restored
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.keys import key_of
from pcr_exp.system.progress import counting_bar
from pcr_exp.system.randomness import Purpose, stream

log = logging.getLogger(__name__)

NUM_IMAGES = 200
"""Number of images measured: the first of the training split, which was shuffled when it was encoded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupQuality:
    """Quality of training crops at one scan group, relative to the same crops from all scan groups."""

    group: int
    decode: str
    """The value of `loader.decode`."""
    antialias: bool
    """The value of `loader.antialias`."""
    ms_ssim_mean: float | None
    """None if the crops are smaller than the window of MS-SSIM."""
    ms_ssim_std: float | None
    """Standard deviation over images."""
    num_images: int
    num_scales: int
    """Number of MS-SSIM scales that fit the crops: five, fewer below 176 px, 0 if none fits."""
    bytes_per_image: float
    """Mean size of the JPEG data up to the group, without record headers."""


def training_quality(
    config: TrainConfig, *, progress: bool, num_images: int = NUM_IMAGES
) -> list[GroupQuality]:
    """Return the quality of a run's training crops at every scan group that it may read.

    It is measured once for all runs with equal crops. The result is saved with the records or, if those are
    not writable, in `runs_root`. A run's clocks, bytes, random numbers and page cache are unaffected.

    Args:
        config: The whole configuration.
        progress: Show a bar on stderr.
        num_images: Maximum number of images to measure.

    Raises:
        PcrExpError: the images cannot be read or decoded.
    """
    records = open_data(config, plain=True).train
    groups = groups_read(config, records.index)
    measurement = _Measurement(config, records, num_images)
    files = {group: _folder(config) / measurement.file(group) for group in groups}
    kept = {group: _read(path) for group, path in files.items()}
    missing = [group for group in groups if kept[group] is None]
    if missing:
        started_s = time.monotonic()
        with (
            counting_bar("quality", shown=progress) as tell,
            page_cache_restored(config, records, measurement.num_images),
        ):
            for quality in measurement.at(missing, tell):
                kept[quality.group] = quality
                _write(files[quality.group], quality)
        seconds = time.monotonic() - started_s
        is_baseline = config.scan.encoding == "baseline"
        levels = "baseline" if is_baseline else f"scan groups {', '.join(map(str, missing))}"
        crops = f"crops of {config.training.image_size} px of {measurement.num_images} training images"
        words = f"MS-SSIM of {crops}, {levels}"
        log.info("quality measured: %s; %.1f s", words, seconds)
    return [quality for quality in kept.values() if quality is not None]


def groups_read(config: TrainConfig, index: RecordIndex) -> list[int]:
    """Return every scan group that the run may read, including repeats of echoed samples, ascending."""
    run = PolicyInputs(config.seed, open_consensus(torch.device("cpu")), index)
    policy = open_policy(config.scan, run)
    return sorted({*policy.candidates, *config.echo.repeat_groups})


def _folder(config: TrainConfig) -> Path:
    records = Path(config.records.root) / records_folder(config.dataset, config.records)
    beside_records = "://" not in config.records.root and os.access(records, os.W_OK)
    return records / "quality" if beside_records else Path(config.runs_root) / ".quality"


class _Measurement:
    """Measurement of a run's crops, which are the same in every run; holds what all groups share."""

    def __init__(self, config: TrainConfig, records: RecordSet, num_images: int) -> None:
        index, self._crops = records.index, config.crops
        size_px = self._crops.train_px
        self.num_images = min(num_images, index.num_samples)
        self._transform = train_transform(self._crops)
        self._sample = FixedSample(records, num_images, decode=records.open_decoder(self._crops.decode))
        crop = np.zeros((size_px, size_px, 3), dtype=np.uint8)
        self._num_scales = scales_that_fit(crop, crop) if size_px >= WINDOW_PX else 0
        self._decided_by = {
            "numerics": NUMERICS,
            "records": index.fingerprint,
            "encoding": index.encoding,
            "num_images": self.num_images,
            **self._crops.key(),
        }

    def file(self, group: int) -> str:
        """Return the name of the file that stores the measurement at a group."""
        return f"group_{group}-{key_of({**self._decided_by, 'group': group})}.json"

    def at(self, groups: Sequence[int], tell: Callable[[int, int], None]) -> Iterator[GroupQuality]:
        full, positions = self._sample.full_group, range(self.num_images)
        compared = [group for group in groups if group != full and self._num_scales]
        values: dict[int, list[float]] = {group: [] for group in compared}
        for position in positions if compared else ():
            reference = self._crop(position, full)
            for group in compared:
                values[group].append(ms_ssim(reference, self._crop(position, group)).value)
            tell(position + 1, self.num_images)
        for group in groups:
            alike = values.get(group, [1.0] if self._num_scales else [])
            yield GroupQuality(
                group=group,
                decode=self._crops.decode,
                antialias=self._crops.antialias,
                ms_ssim_mean=float(np.mean(alike)) if alike else None,
                ms_ssim_std=float(np.std(alike)) if alike else None,
                num_images=self.num_images,
                num_scales=self._num_scales,
                bytes_per_image=sum(self._sample.num_bytes(i, group) for i in positions) / self.num_images,
            )

    def _crop(self, position: int, group: int) -> Pixels:
        draws = stream(0, Purpose.QUALITY, position).random(self._transform.num_draws)
        size_px = self._transform.image_size
        out = np.empty((size_px, size_px, 3), dtype=np.uint8)
        self._transform(self._sample.image(position, group), draws.tolist(), out)
        return out


def _read(path: Path) -> GroupQuality | None:
    try:
        values: dict[str, Any] = json.loads(path.read_bytes())
        return GroupQuality(**values)
    except (OSError, ValueError, TypeError):  # missing, or from a version with other fields
        return None


def _write(path: Path, quality: GroupQuality) -> None:
    try:
        make_folder(path.parent)
        write_atomic(path, [json.dumps(asdict(quality), indent=2).encode() + b"\n"])
    except (OSError, StorageError) as error:
        log.info("%s cannot be saved, so the next run measures it again: %s", path, error)
