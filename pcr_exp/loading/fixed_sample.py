"""The images of probes: a few training images at every scan group, and their similarity to the full image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pcr_exp.images.codec import Decoder, Source
from pcr_exp.images.ms_ssim import fits_window, ms_ssim, report_too_small
from pcr_exp.images.resample import whole_image
from pcr_exp.loading.selection import Selection
from pcr_exp.loading.transform import EvalTransform
from pcr_exp.records.groups import RecordPrefix
from pcr_exp.records.reader import RecordSet


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Images, uint8 [B, H, W, 3], and their labels, int64 [B]."""

    images: Tensor
    labels: Tensor


class FixedSample:
    """The first images of a split; its order was shuffled when it was encoded.

    Their records are read once, with all scan groups, on first use. They stay in memory. A lower group is a
    part of the bytes read, so decoding it later needs no further read.
    """

    def __init__(
        self, records: RecordSet, num_images: int, *, decode: Decoder, selection: Selection | None = None
    ) -> None:
        """Take the first `num_images` of the split or `selection`, or all if there are fewer."""
        self.full_group = records.index.num_groups
        self._records = records
        images = range(records.index.num_samples) if selection is None else selection.images.tolist()
        self._images = images[:num_images]
        """Image numbers in the split."""
        self._num_images = len(self._images)
        self._decode = decode

    def __len__(self) -> int:
        return self._num_images

    def id(self, position: int) -> str:
        """Return the id of an image."""
        prefix, i = self._samples[position]
        return prefix.ids[i]

    def image(self, position: int, group: int) -> Source:
        """Return an image as decoded when its record is read up to `group`.

        Raises:
            RecordError: the image cannot be decoded.
        """
        prefix, i = self._samples[position]
        return self._decode(prefix.encoded(i, group), group, f"sample {prefix.ids[i]} (scan group {group})")

    def num_bytes(self, position: int, group: int) -> int:
        """Return the number of bytes of an image's JPEG data up to a scan group."""
        prefix, i = self._samples[position]
        return len(prefix.encoded(i, group))

    def label(self, position: int, name: str) -> int:
        """Return an image's class index for a named label."""
        prefix, i = self._samples[position]
        return int(prefix.labels[name][i])

    def batches(
        self, group: int, transform: EvalTransform, *, label: str, batch_size: int
    ) -> Iterator[SampleBatch]:
        """Yield all images at a scan group, without randomness; the last batch may be shorter."""
        size = transform.image_size
        for first in range(0, self._num_images, batch_size):
            samples = self._samples[first : first + batch_size]
            images = np.empty((len(samples), size, size, 3), dtype=np.uint8)
            for offset, out in enumerate(images):
                transform(self.image(first + offset, group), (), out)
            labels = np.array([prefix.labels[label][i] for prefix, i in samples], dtype=np.int64)
            yield SampleBatch(torch.from_numpy(images), torch.from_numpy(labels))

    @cached_property
    def _samples(self) -> list[tuple[RecordPrefix, int]]:
        """For each image, its record's prefix and its number within the record."""
        sizes = self._records.index.sizes
        ends = np.cumsum(sizes)
        prefixes: dict[int, RecordPrefix] = {}
        samples: list[tuple[RecordPrefix, int]] = []
        for image in self._images:
            record = int(np.searchsorted(ends, image, side="right"))
            if record not in prefixes:
                prefixes[record] = self._records.read_prefix(record, self.full_group)
            samples.append((prefixes[record], int(image - ends[record] + sizes[record])))
        return samples


def mean_similarities(sample: FixedSample, groups: Iterable[int]) -> dict[int, float]:
    """Return the mean MS-SSIM of a sample's images at each of `groups`, compared with all scan groups.

    Raises:
        ImageError: all images are too small to be measured. If only some are, they are left out.
    """
    values: dict[int, list[float]] = {group: [] for group in groups}
    num_small = 0
    for position in range(len(sample)):
        whole = whole_image(sample.image(position, sample.full_group))
        if not fits_window(whole):
            num_small += 1
            continue
        for group, of_group in values.items():
            is_whole = group == sample.full_group
            image = whole if is_whole else whole_image(sample.image(position, group))
            of_group.append(1.0 if is_whole else ms_ssim(whole, image).value)
    report_too_small("similarity of scan groups", num_small, len(sample))
    return {group: float(np.mean(of_group)) for group, of_group in values.items()}
