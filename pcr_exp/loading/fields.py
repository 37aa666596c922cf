"""Fields in batches: decode stored bytes into inputs for transforms, and collate samples into batches.

Masks and boxes are `torchvision.tv_tensors`, which `torchvision.transforms.v2` crops and mirrors with the
image. Our own crops (`transform`) would leave them unchanged, so the combination is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pcr_exp.errors import ConfigError, LoaderError
from pcr_exp.images.codec import Buffer
from pcr_exp.records.field_values import GEOMETRIC, STACKED
from pcr_exp.records.fields import field_value

if TYPE_CHECKING:
    from pcr_exp.loading.batch import EncodedImages
    from pcr_exp.loading.workers import Decoded, ImagesDecoder

LABELS_SUFFIX = "_labels"
"""Appended to the name of a boxes field, it names their classes."""


def decode_fields(
    beside: Mapping[str, Buffer], kinds: Mapping[str, str], size_px: tuple[int, int] | None, name: str
) -> dict[str, Any]:
    """Decode the fields of an image, by name.

    Args:
        beside: Stored bytes of each field.
        kinds: Kind of each field.
        size_px: Width and height of the whole image; None if no field is a mask or boxes.
        name: The image's name for error messages.

    Returns:
        For a mask `tv_tensors.Mask`, uint8 or int32 [H, W]. For boxes `tv_tensors.BoundingBoxes`, float32
        [K, 4] (left, top, right, bottom in px), and under the name plus `_labels` their classes, int64 [K].
        For an array a tensor, for text a string, for JSON the Python value.

    Raises:
        RecordError: a field cannot be used.
    """
    found: dict[str, Any] = {}
    for field, kind in kinds.items():
        value = field_value(kind, beside[field], size_px, f"field {field} of {name}")
        if kind in GEOMETRIC:
            found |= _geometric(field, value, size_px)
        else:
            found[field] = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
    return found


def _geometric(field: str, value: Any, size_px: tuple[int, int] | None) -> dict[str, Any]:
    from torchvision import tv_tensors  # type: ignore[import-untyped]

    if isinstance(value, np.ndarray):
        return {field: tv_tensors.Mask(torch.from_numpy(value))}
    assert size_px is not None
    boxes = tv_tensors.BoundingBoxes(
        torch.from_numpy(value.corners), format="XYXY", canvas_size=(size_px[1], size_px[0])
    )
    return {field: boxes, field + LABELS_SUFFIX: torch.from_numpy(value.labels)}


def collate_fields(samples: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Collate a batch's fields: tensors [B, ...] for masks and arrays, lists of B for all others.

    Args:
        samples: The fields of each image, as `decode_fields` or a transform returned them.
        kinds: Kind of each field.

    Raises:
        LoaderError: a sample's fields differ from the first one's, or masks or arrays differ in shape.
    """
    names = list(samples[0])
    found: dict[str, Any] = {}
    for i, sample in enumerate(samples):
        if sample.keys() != samples[0].keys():
            raise LoaderError(
                f"image {i} of a batch has the fields {', '.join(sample)}, but its first image has "
                f"{', '.join(names)}. The transform must return the same fields for every image."
            )
    for name in names:
        values = [_plain(sample[name]) for sample in samples]
        if kinds.get(name) not in STACKED:
            found[name] = values
            continue
        tensors = [torch.as_tensor(value) for value in values]
        shapes = {(tuple(tensor.shape), tensor.dtype) for tensor in tensors}
        if len(shapes) > 1:
            shown = " and ".join(f"{dtype} {list(shape)}" for shape, dtype in sorted(shapes, key=str)[:2])
            raise LoaderError(
                f"field {name}: a batch cannot stack {shown}. End the transform with a crop or resize to one "
                "size; arrays of different lengths can be stored as JSON."
            )
        found[name] = torch.stack(tensors)
    return found


def as_arrays(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Replace tensors with arrays, which go through a pipe without shared-memory files."""
    return _changed(fields, torch.Tensor, lambda tensor: tensor.detach().numpy())


def as_tensors(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Replace arrays with tensors."""
    return _changed(fields, np.ndarray, torch.from_numpy)


def pinned(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Replace tensors with copies in page-locked memory."""
    return _changed(fields, torch.Tensor, torch.Tensor.pin_memory)


def refuse_own_crops(kinds: Mapping[str, str]) -> None:
    """Raise ConfigError if a field must be cropped with its image, which our own crops do not do."""
    for name, kind in kinds.items():
        if kind in GEOMETRIC:
            raise ConfigError(
                f"fields={list(kinds)}: {name} must be cropped together with its image, but image_size crops "
                "only the image. Instead of image_size, give pcr_exp.open(transform=...) a transform of "
                "torchvision.transforms.v2, such as RandomResizedCrop."
            )


class WithFields:
    """Wraps a decoder of crops and adds fields that no crop changes."""

    def __init__(self, decoder: ImagesDecoder, kinds: Mapping[str, str]) -> None:
        self._decoder = decoder
        self._kinds = kinds

    def room(self, num_images: int) -> tuple[int, int]:
        """Return the space that the wrapped decoder needs."""
        return self._decoder.room(num_images)

    def __call__(self, images: EncodedImages) -> Decoded:
        """Decode as the wrapped decoder does. Also raises RecordError if a field cannot be used."""
        decoded = self._decoder(images)
        values = [
            decode_fields(beside, self._kinds, None, name)
            for beside, name in zip(images.fields, images.names, strict=True)
        ]
        return decoded._replace(fields=as_arrays(collate_fields(values, self._kinds)))


def _plain(value: Any) -> Any:
    return value.as_subclass(torch.Tensor) if isinstance(value, torch.Tensor) else value


def _changed(fields: Mapping[str, Any], kind: type, change: Callable[[Any], Any]) -> dict[str, Any]:
    """Apply `change` to each value, or item of a list, that is of type `kind`."""

    def one(value: Any) -> Any:
        return change(value) if isinstance(value, kind) else value

    return {
        name: [one(item) for item in value] if isinstance(value, list) else one(value)
        for name, value in fields.items()
    }
