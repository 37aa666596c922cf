"""The images of probes: a few training images at every scan group, and their similarity to the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pcr_exp.errors import ImageError
from pcr_exp.images.codec import Decoder, Source
from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.images.resample import whole_image
from pcr_exp.loading.transform import EvalTransform
from pcr_exp.records.groups import RecordPrefix
from pcr_exp.records.reader import RecordSet


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Images, uint8 [B, H, W, 3], and their labels, int64 [B]."""

    images: Tensor
    labels: Tensor


class FixedSample:
    """The first images of a split, whose order was shuffled when it was encoded.

    Their records are read once, with all scan groups, when they are first needed, and stay in memory: a
    lower group is a part of what was read, so looking at it again costs storage nothing.
    """

    def __init__(self, records: RecordSet, num_images: int, *, decode: Decoder) -> None:
        """Take `num_images`, or as many as there are."""
        self.full_group = records.index.num_groups
        self._records = records
        self._num_images = min(num_images, records.index.num_samples)
        self._decode = decode

    def __len__(self) -> int:
        return self._num_images

    def id(self, position: int) -> str:
        """The id of an image."""
        prefix, i = self._samples[position]
        return prefix.ids[i]

    def image(self, position: int, group: int) -> Source:
        """An image as it is decoded when its record was read up to `group`.

        Raises:
            RecordError: it cannot be decoded.
        """
        prefix, i = self._samples[position]
        return self._decode(prefix.encoded(i, group), group, f"sample {prefix.ids[i]} (scan group {group})")

    def num_bytes(self, position: int, group: int) -> int:
        """Bytes of an image's JPEG data up to a scan group."""
        prefix, i = self._samples[position]
        return len(prefix.encoded(i, group))

    def label(self, position: int, name: str) -> int:
        """An image's class index under a named label."""
        prefix, i = self._samples[position]
        return int(prefix.labels[name][i])

    def batches(
        self, group: int, transform: EvalTransform, *, label: str, batch_size: int
    ) -> Iterator[SampleBatch]:
        """All images at a scan group, without anything random; the last batch may be short."""
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
        """For each image, the record that it is in and its place there."""
        samples: list[tuple[RecordPrefix, int]] = []
        for record in range(len(self._records.index.records)):
            if len(samples) < self._num_images:
                prefix = self._records.read_prefix(record, self.full_group)
                samples += [(prefix, i) for i in range(len(prefix))]
        return samples[: self._num_images]


def mean_similarities(sample: FixedSample, groups: Iterable[int]) -> dict[int, float]:
    """Mean MS-SSIM of a sample's images at each of some scan groups, against all of their groups.

    Raises:
        ImageError: an image is too small to be measured; the message begins with its id.
    """
    return {group: float(np.mean(_similarities(sample, group))) for group in groups}


def _similarities(sample: FixedSample, group: int) -> list[float]:
    if group == sample.full_group:
        return [1.0]
    values = []
    for position in range(len(sample)):
        whole, part = (whole_image(sample.image(position, g)) for g in (sample.full_group, group))
        try:
            values.append(ms_ssim(whole, part).value)
        except ImageError as error:
            raise ImageError(f"{sample.id(position)}: {error}") from error
    return values
