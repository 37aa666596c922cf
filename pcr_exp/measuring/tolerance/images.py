"""Images as every scan group shows them: from files, without records, or from records that were read."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from pcr_exp.config.crops import CropSettings
from pcr_exp.config.scan_scripts import DEFAULT, ScanScript
from pcr_exp.datasets.sample import Dataset, Sample, sort_key
from pcr_exp.images.codec import Pixels
from pcr_exp.images.decode import ProgressiveJpeg
from pcr_exp.images.jpeg import join_pieces
from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.loading.fixed_sample import FixedSample
from pcr_exp.loading.transform import EvalTransform, eval_transform


class Views(NamedTuple):
    """One image at every scan group."""

    crops: Pixels
    """uint8 [groups, px, px, 3]: the evaluation crop."""
    group_bytes: NDArray[np.int64]
    """[groups]: bytes of the image up to each group."""
    original_bytes: int
    """Bytes of the file as it was; 0 where it is not at hand."""


class GroupedImages(Protocol):
    """Some images, each of which can be looked at as its first scan groups show it."""

    groups: tuple[int, ...]

    def __len__(self) -> int: ...

    def id(self, position: int) -> str:
        """The id of an image."""
        ...

    def key(self, position: int) -> Any:
        """Settings that its views depend on, as plain JSON: two images of one key look alike."""
        ...

    def views(self, position: int) -> Views:
        """Look at an image. Raises ImageError or RecordError if it cannot be decoded."""
        ...


def choose_samples(dataset: Dataset, splits: Sequence[str], max_images: int | None) -> list[Sample]:
    """The first samples by the hash of their ids: a random subset, which is part of every larger one."""
    every = [sample for split in splits for sample in dataset.splits[split]]
    return sorted(every, key=lambda sample: sort_key(sample.id))[:max_images]


class ImageFiles:
    """JPEG files, transcoded in memory as records would hold them."""

    def __init__(
        self,
        samples: Sequence[Sample],
        groups: Sequence[int],
        crops: CropSettings,
        *,
        max_pixels: int,
        script: ScanScript = DEFAULT,
    ) -> None:
        """Views are centre crops; files of more than `max_pixels` are refused."""
        self.groups = tuple(groups)
        self._samples = samples
        self._transform = eval_transform(crops)
        self._max_pixels = max_pixels
        self._codec = ProgressiveJpeg(script)
        self._decoder = self._codec.open_decoder(crops.decode, max_pixels)
        fraction = crops.augment.eval_crop_fraction
        self._settings = [crops.eval_px, fraction, crops.antialias, crops.decode, list(groups)]
        if script != DEFAULT:
            self._settings.append(script.id)

    def __len__(self) -> int:
        return len(self._samples)

    def id(self, position: int) -> str:
        """The sample's."""
        return self._samples[position].id

    def key(self, position: int) -> Any:
        """The content of the file, and how it is looked at."""
        return [xxhash.xxh3_128_hexdigest(self._samples[position].file.read_bytes()), *self._settings]

    def views(self, position: int) -> Views:
        """Read, transcode, cut, decode and crop. Raises ImageError or RecordError if that cannot be done."""
        sample = self._samples[position]
        original = sample.file.read_bytes()
        pieces = self._codec.split(self._codec.encode(original, self._max_pixels))
        ends = np.cumsum([len(piece) for piece in pieces])
        crops = np.empty((len(self.groups), *[self._transform.image_size] * 2, 3), dtype=np.uint8)
        for group, out in zip(self.groups, crops, strict=True):
            jpeg = join_pieces(pieces[:group])
            self._transform(self._decoder(jpeg, group, f"{sample.id} (scan group {group})"), (), out)
        return Views(crops, ends[np.array(self.groups) - 1], len(original))


class RecordImages:
    """A sample of a run's training records, which is read once, through the run's storage."""

    def __init__(self, sample: FixedSample, groups: Sequence[int], transform: EvalTransform) -> None:
        self.groups = tuple(groups)
        self._sample = sample
        self._transform = transform

    def __len__(self) -> int:
        return len(self._sample)

    def id(self, position: int) -> str:
        """The sample's."""
        return self._sample.id(position)

    def key(self, position: int) -> Any:
        """Its id: features of a run's own sample are not kept from one run to the next."""
        return self.id(position)

    def views(self, position: int) -> Views:
        """Decode and crop. Raises RecordError if that cannot be done."""
        crops = np.empty((len(self.groups), *[self._transform.image_size] * 2, 3), dtype=np.uint8)
        for group, out in zip(self.groups, crops, strict=True):
            self._transform(self._sample.image(position, group), (), out)
        num_bytes = np.array([self._sample.num_bytes(position, group) for group in self.groups])
        return Views(crops, num_bytes, 0)


def similarity_of_groups(
    images: GroupedImages, positions: Sequence[int], num_threads: int = 1
) -> NDArray[np.float32]:
    """MS-SSIM of some images' crops at each group against the crop at the last one, [groups, images].

    Args:
        images: That were looked at.
        positions: Of those to compare: all can be decoded.
        num_threads: Images that are compared at a time.

    Raises:
        ImageError: an image cannot be decoded, or a crop is smaller than one window of SSIM.
    """

    def compare(position: int) -> list[float]:
        crops = images.views(position).crops
        return [ms_ssim(crops[-1], crop).value for crop in crops]

    with ThreadPoolExecutor(num_threads) as pool:
        columns = list(pool.map(compare, positions))
    return np.array(columns, dtype=np.float32).reshape(len(columns), len(images.groups)).T
