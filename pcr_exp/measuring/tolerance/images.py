"""Images decoded at every scan group: from files, without records, or from records already read."""

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
    """uint8 [groups, px, px, 3]: the evaluation crop at each group."""
    group_bytes: NDArray[np.int64]
    """[groups]: bytes of the image up to each group."""
    original_bytes: int
    """Bytes of the original file; 0 if it is not available."""


class GroupedImages(Protocol):
    """Images, each of which can be decoded from its first scan groups."""

    groups: tuple[int, ...]

    def __len__(self) -> int: ...

    def id(self, position: int) -> str:
        """Return an image's id."""
        ...

    def key(self, position: int) -> Any:
        """Return what an image's views depend on, as plain JSON: equal keys mean equal views."""
        ...

    def views(self, position: int) -> Views:
        """Decode an image at every group. Raises ImageError or RecordError if that fails."""
        ...


def choose_samples(dataset: Dataset, splits: Sequence[str], max_images: int | None) -> list[Sample]:
    """Return the first samples by the hash of their ids: a random subset, contained in every larger one."""
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
        """Use centre crops as views, and refuse files of more than `max_pixels`."""
        self.groups = tuple(groups)
        self._samples = samples
        self._transform = eval_transform(crops)
        self._max_pixels = max_pixels
        self._codec = ProgressiveJpeg(script)
        self._codec.check_installed()
        self._decoder = self._codec.open_decoder(crops.decode, max_pixels)
        fraction = crops.augment.eval_crop_fraction
        self._settings = [crops.eval_px, fraction, crops.antialias, crops.decode, list(groups), max_pixels]
        if script != DEFAULT:
            self._settings.append(script.id)

    def __len__(self) -> int:
        return len(self._samples)

    def id(self, position: int) -> str:
        """Return the sample's id."""
        return self._samples[position].id

    def key(self, position: int) -> Any:
        """Return a hash of the file's content, and the settings of its views."""
        return [xxhash.xxh3_128_hexdigest(self._samples[position].file.read_bytes()), *self._settings]

    def views(self, position: int) -> Views:
        """Read, transcode, split, decode and crop. Raises ImageError or RecordError if that fails."""
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
    """A sample of a run's training records, read once through the run's storage."""

    def __init__(self, sample: FixedSample, groups: Sequence[int], transform: EvalTransform) -> None:
        self.groups = tuple(groups)
        self._sample = sample
        self._transform = transform

    def __len__(self) -> int:
        return len(self._sample)

    def id(self, position: int) -> str:
        """Return the sample's id."""
        return self._sample.id(position)

    def key(self, position: int) -> Any:
        """Return the id: features of a run's own sample are not cached from one run to the next."""
        return self.id(position)

    def views(self, position: int) -> Views:
        """Decode and crop. Raises RecordError if that fails."""
        crops = np.empty((len(self.groups), *[self._transform.image_size] * 2, 3), dtype=np.uint8)
        for group, out in zip(self.groups, crops, strict=True):
            self._transform(self._sample.image(position, group), (), out)
        num_bytes = np.array([self._sample.num_bytes(position, group) for group in self.groups])
        return Views(crops, num_bytes, 0)


def similarity_of_groups(
    images: GroupedImages, positions: Sequence[int], num_threads: int = 1
) -> NDArray[np.float32]:
    """Return MS-SSIM of images' crops at each group against the last group, float32 [groups, images].

    Args:
        images: The images.
        positions: Positions of the images to compare; all must be decodable.
        num_threads: Images compared at a time.

    Raises:
        ImageError: an image cannot be decoded, or a crop is smaller than one window of SSIM.
    """

    def compare(position: int) -> list[float]:
        crops = images.views(position).crops
        return [ms_ssim(crops[-1], crop).value for crop in crops]

    with ThreadPoolExecutor(num_threads) as pool:
        columns = list(pool.map(compare, positions))
    return np.array(columns, dtype=np.float32).reshape(len(columns), len(images.groups)).T
