"""User transforms: each receives a whole image decoded at full size, and the results are stacked.

Our own transforms (`transform`) are faster, because they decode only what a crop shows. User transforms may
come from torchvision, albumentations or timm, or be any function. Their randomness is seeded per image.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL import Image

from pcr_exp.errors import ConfigError, LoaderError
from pcr_exp.images.codec import Decoder, Pixels
from pcr_exp.images.resample import whole_image
from pcr_exp.loading.batch import EncodedImages
from pcr_exp.loading.fields import as_arrays, collate_fields, decode_fields
from pcr_exp.loading.workers import Decoded
from pcr_exp.system.randomness import Purpose, stream

IMAGES_AS = ("auto", "array", "pil", "tensor")
_ALBUMENTATIONS = "albumentations"
_V2 = "torchvision.transforms.v2"
_IMAGE_ROOM_BYTES = 4 * 3 * 384 * 384
_FILE_ROOM_BYTES = 2**18


class WholeImageTransform:
    """A user's transform, called with the image type that it expects.

    `images_as` selects the type: `array` is uint8 [H, W, 3], `pil` a Pillow image, `tensor` a
    `torchvision.tv_tensors.Image`, uint8 [3, H, W]. `auto` depends on the transform's package: `tensor` for
    torchvision.transforms.v2, `pil` for torchvision.transforms and timm, `array` for all others.
    Albumentations transforms are called by their own convention.
    """

    def __init__(self, transform: Callable[..., Any] | None, images_as: str = "auto") -> None:
        """Raises ConfigError for an unknown `images_as`."""
        if images_as not in IMAGES_AS:
            raise ConfigError(f"images_as={images_as!r}: wanted {', '.join(IMAGES_AS)}.")
        self._transform = transform
        self._images_as = _wanted_by(transform) if images_as == "auto" else images_as

    def __call__(self, pixels: Pixels) -> Any:
        """Transform an image, uint8 [H, W, 3]. Without a transform, only convert it to `images_as`."""
        image = _AS[self._images_as](pixels)
        if self._transform is None:
            return image
        return self._transform(image=image)["image"] if self._is_albumentations else self._transform(image)

    def with_fields(self, pixels: Pixels, fields: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Transform an image together with its fields.

        Raises:
            LoaderError: the transform does not return both.
        """
        image = _AS[self._images_as](pixels)
        made = (image, fields) if self._transform is None else self._transform(image, fields)
        if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], dict)):
            raise LoaderError(
                f"the transform gave {type(made).__name__} for an image and fields "
                f"({', '.join(fields)}); wanted both, as torchvision.transforms.v2 gives them."
            )
        return made

    def refuse_fields(self) -> None:
        """Raise ConfigError if the transform is known to take only an image."""
        package, module = _package(self._transform), type(self._transform).__module__
        is_old = package == "torchvision" and not module.startswith(_V2)
        if is_old or package in (_ALBUMENTATIONS, "timm") or isinstance(self._transform, torch.nn.Sequential):
            raise ConfigError(
                f"transform={type(self._transform).__name__} of {module} takes only an image; with fields, "
                "wanted a transform of torchvision.transforms.v2 (Compose for several), or a function of "
                "(image, fields)."
            )

    def seed(self, seed: int) -> None:
        """Seed the random states of Python, numpy and torch (CPU), and of an albumentations transform."""
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 (what users' transforms draw from)
        torch.default_generator.manual_seed(seed)
        own = getattr(self._transform, "set_random_seed", None)
        if self._is_albumentations and own is not None:
            own(seed % 2**32)

    @property
    def _is_albumentations(self) -> bool:
        return _package(self._transform) == _ALBUMENTATIONS


@contextmanager
def random_states_restored() -> Iterator[None]:
    """Restore on exit the global random states that `WholeImageTransform.seed` sets."""
    python, numpy, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(torch_state)


class WholeImageDecoder:
    """Decodes a batch's images whole, transforms them, and stacks the results."""

    def __init__(
        self,
        transform: WholeImageTransform,
        *,
        decode: Decoder,
        seed: int,
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        """`kinds` maps fields to their kinds. Raises ConfigError if the transform takes no fields."""
        self._transform = transform
        self._kinds = kinds or {}
        if self._kinds:
            transform.refuse_fields()
        self._decode = decode
        self._seed = seed

    def room(self, num_images: int) -> tuple[int, int]:
        """Reserve space for float32 images of 384 x 384 px and files of 256 KiB; a pipe sends larger ones."""
        return num_images * _IMAGE_ROOM_BYTES, num_images * _FILE_ROOM_BYTES

    def __call__(self, images: EncodedImages) -> Decoded:
        """Decode and transform every image.

        Raises:
            RecordError: an image cannot be decoded.
            LoaderError: the transform returns no tensor, tensors of different shapes, or no fields.
        """
        started_s = time.perf_counter()
        rng = stream(self._seed, Purpose.AUGMENTATION, images.epoch, images.slot, images.index)
        seeds = rng.integers(2**63, size=len(images.files)).tolist()
        shared_buffer, batch, in_shared = images.files.shared_buffer, np.empty(0), False
        beside: list[dict[str, Any]] = []
        with random_states_restored():
            for i, (file, group, name) in enumerate(
                zip(images.files, images.groups, images.names, strict=True)
            ):
                pixels = whole_image(self._decode(file, group, name))
                self._transform.seed(seeds[i])
                made = _as_array(self._made(pixels, images, i, beside), name)
                if i == 0:
                    shape, dtype = (len(seeds), *made.shape), made.dtype.str
                    in_shared = shared_buffer is not None and shared_buffer.has_space(shape, dtype)
                    batch = (
                        shared_buffer.pixels(shape, dtype)
                        if shared_buffer and in_shared
                        else np.empty(shape, dtype)
                    )
                if made.shape != batch.shape[1:] or made.dtype != batch.dtype:
                    raise LoaderError(
                        f"{name}: the transform gave {made.dtype} {list(made.shape)}, but {batch.dtype} "
                        f"{list(batch.shape[1:])} for the batch's first image. Images of a batch are "
                        "stacked: end the transform with a crop or resize to one size."
                    )
                batch[i] = made
        done_s = time.perf_counter() - started_s
        fields = as_arrays(collate_fields(beside, self._kinds)) if self._kinds else None
        return Decoded(None if in_shared else batch, done_s, batch.shape, batch.dtype.str, fields)

    def _made(self, pixels: Pixels, images: EncodedImages, i: int, beside: list[dict[str, Any]]) -> Any:
        """Return image i, transformed; append its transformed fields to `beside`."""
        if not self._kinds:
            return self._transform(pixels)
        size_px = pixels.shape[1], pixels.shape[0]
        fields = decode_fields(images.fields[i], self._kinds, size_px, images.names[i])
        image, fields = self._transform.with_fields(pixels, fields)
        beside.append(fields)
        return image


def _as_array(made: Any, name: str) -> np.ndarray[Any, Any]:
    """Convert the result of a transform to an array."""
    if isinstance(made, torch.Tensor):
        if made.dtype == torch.bfloat16:
            raise LoaderError(
                f"{name}: the transform gave bfloat16; wanted float32, or another type that numpy has."
            )
        return made.detach().numpy()
    if isinstance(made, np.ndarray | Image.Image):
        return np.asarray(made)
    raise LoaderError(
        f"{name}: the transform gave {type(made).__name__}; wanted one tensor, array or Pillow image. Stack "
        "several views into one tensor, or use torch's DataLoader, whose collate_fn takes anything."
    )


def _wanted_by(transform: object) -> str:
    if isinstance(transform, torch.nn.Sequential) and len(transform):
        return _wanted_by(transform[0])
    module = type(transform).__module__
    if module.startswith(_V2):
        return "tensor"
    return "pil" if _package(transform) in ("torchvision", "timm") else "array"


def _package(transform: object) -> str:
    return type(transform).__module__.partition(".")[0]


def _as_tensor(pixels: Pixels) -> Any:
    from torchvision import tv_tensors  # type: ignore[import-untyped]

    return tv_tensors.Image(torch.from_numpy(pixels).permute(2, 0, 1))


_AS: dict[str, Callable[[Pixels], Any]] = {
    "array": lambda pixels: pixels,
    "pil": Image.fromarray,
    "tensor": _as_tensor,
}
