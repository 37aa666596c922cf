"""Features of a frozen, pretrained network at every scan group, cached on disk as they are computed.

A frozen batch normalisation is a factor and a shift per channel, which can be folded into the weights of the
convolution before it (Jacob et al. 2018, section 3.2).
"""

from __future__ import annotations

import copy
import io
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from pcr_exp.config.training import ModelConfig
from pcr_exp.errors import ConfigError, ImageError, RecordError
from pcr_exp.images.codec import Pixels
from pcr_exp.measuring.tolerance.images import GroupedImages, Views
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.training.inputs import Normalization, model_input, normalization_of
from pcr_exp.training.models import open_model

_SAME = 1e-3
"""Largest rounding change that folding may cause, as a share of the largest output."""


@torch.no_grad()
def folded(model: nn.Module, example: Tensor) -> nn.Module:
    """Return a copy in which each batch normalisation after a convolution is folded into it.

    A forward pass of the example shows which follows which. The model itself is returned if the copy's
    outputs differ, because a convolution's output is also used elsewhere.

    Args:
        model: The model, in evaluation mode.
        example: An example input.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        return model
    pairs = _pairs(model, example)
    copied = copy.deepcopy(model)
    for conv_name, norm_name in pairs:
        conv, norm = copied.get_submodule(conv_name), copied.get_submodule(norm_name)
        assert isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d)
        assert norm.running_mean is not None and norm.running_var is not None
        moments = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
        conv.weight, conv.bias = fuse_conv_bn_weights(conv.weight, conv.bias, *moments)
        parent, _, name = norm_name.rpartition(".")
        setattr(copied.get_submodule(parent), name, nn.Identity())
    wanted, found = model(example), copied(example)
    close = torch.allclose(found, wanted, rtol=0, atol=_SAME * float(wanted.abs().max()))
    return copied if close else model


def _pairs(model: nn.Module, example: Tensor) -> list[tuple[str, str]]:
    """Return names (convolution, normalisation) where the second's input is the first's output."""
    made: dict[int, tuple[str, Tensor]] = {}  # holds the tensors, so that ids stay unique
    pairs: list[tuple[str, str]] = []

    def note(name: str) -> object:
        return lambda _module, _inputs, output: made.update({id(output): (name, output)})

    def match(name: str) -> object:
        def seen(module: nn.BatchNorm2d, inputs: tuple[Tensor, ...]) -> None:
            source = made.get(id(inputs[0]))
            if source is not None and module.track_running_stats:
                pairs.append((source[0], name))

        return seen

    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            hooks.append(module.register_forward_hook(note(name)))  # type: ignore[arg-type]
        elif isinstance(module, nn.BatchNorm2d):
            hooks.append(module.register_forward_pre_hook(match(name)))  # type: ignore[arg-type]
    try:
        model(example)
    finally:
        for hook in hooks:
            hook.remove()
    once = {conv for conv, _ in pairs if sum(other == conv for other, _ in pairs) == 1}
    return [(conv, norm) for conv, norm in pairs if conv in once]


CHUNK_IMAGES = 25
"""Images per feature file: the most that an interrupted program must repeat, per thread."""

_PUBLISHED_CLASSES = 1000
"""Classes of the published weights' head. It is removed anyway, so it is loaded without a replacement."""

FORWARD_IMAGES = 16
"""Images per forward pass: few, so that a layer's output stays in the CPU cache."""


class Backbone:
    """A network without its last linear layer."""

    def __init__(self, model: nn.Module, normalization: Normalization, device: torch.device) -> None:
        """Remove the head of `model`, and move it to the device in evaluation mode.

        Raises:
            ConfigError: the model has no linear layer.
        """
        heads = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
        if not heads:
            raise ConfigError(
                f"model: {type(model).__name__} has no linear layer; features are the inputs of the last "
                "one. Choose a network that ends in one, such as model=efficientnet_lite0."
            )
        parent, _, head = heads[-1].rpartition(".")
        setattr(model.get_submodule(parent), head, nn.Identity())
        self._model = model.eval().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._normalization = normalization
        self._device = device
        self._folding = threading.Lock()
        self._is_folded = False
        digest = xxhash.xxh3_128(repr((type(model).__name__, normalization, "folded")).encode())
        for name, value in sorted(model.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.cpu().contiguous().numpy().tobytes())
        self.key = digest.hexdigest()
        """Hash of the network's class, its weights and its input normalisation."""

    @torch.inference_mode()
    def __call__(self, images: Pixels) -> NDArray[np.float32]:
        """Return features, float32 [B, D], of images, uint8 [B, H, W, 3]. Threads may share a backbone."""
        inputs = model_input(
            torch.from_numpy(images), self._device, channels_last=True, normalization=self._normalization
        )
        with self._folding:
            if not self._is_folded:
                self._fold(inputs[:2])
        features: Tensor = self._model(inputs)
        return features.flatten(1).float().cpu().numpy()

    def _fold(self, inputs: Tensor) -> None:
        # Batch normalisation takes a quarter of EfficientNet-Lite0's CPU time.
        with torch.inference_mode(mode=False):
            model = folded(self._model, inputs.clone())
        self._model = model.to(memory_format=torch.channels_last)
        self._is_folded = True


def open_backbone(config: ModelConfig, device: torch.device) -> Backbone:
    """Open the configured network with its pretrained weights and without its head.

    Raises:
        ConfigError: the network or its weights do not exist, or it has no head to remove.
    """
    return Backbone(open_model(config, _PUBLISHED_CLASSES), normalization_of(config), device)


@dataclass(frozen=True, slots=True)
class Features:
    """Features and sizes of the images that could be decoded."""

    values: NDArray[np.float32]
    """[groups, images, D]."""
    group_bytes: NDArray[np.int64]
    """[groups, images]."""
    original_bytes: NDArray[np.int64]
    """[images]."""
    positions: NDArray[np.int64]
    """[images]: their positions among the given images."""
    rejected: dict[str, str]
    """Reasons why other images could not be decoded, by id."""


class _Chunk(NamedTuple):
    values: NDArray[np.float32]
    group_bytes: NDArray[np.int64]
    original_bytes: NDArray[np.int64]
    positions: NDArray[np.int64]
    """Counted from the chunk's first image."""
    reasons: NDArray[np.str_]
    """[images of the chunk]: reason for rejection; empty if the image was decoded."""


def extract_features(
    images: GroupedImages,
    backbone: Backbone,
    *,
    folder: Path | None,
    num_threads: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Features:
    """Return the features of all images at all groups.

    Args:
        images: Any number of images.
        backbone: Computes features from crops.
        folder: Cache of finished chunks, each under a key of its images and of the backbone; None: no
            cache.
        num_threads: Chunks computed at a time.
        progress: Called with the number of finished images and their total.

    Raises:
        ImageError: no image could be decoded.
    """
    if folder is not None:
        make_folder(folder)
    firsts = range(0, len(images), CHUNK_IMAGES)

    def work(first: int) -> _Chunk:
        return _cached_chunk(images, range(first, min(first + CHUNK_IMAGES, len(images))), backbone, folder)

    chunks: list[_Chunk] = []
    pool = ThreadPoolExecutor(num_threads)
    try:
        for first, chunk in zip(firsts, pool.map(work, firsts), strict=True):
            chunks.append(chunk._replace(positions=chunk.positions + first))
            progress(first + len(chunk.reasons), len(images))
    finally:
        pool.shutdown(cancel_futures=True)
    reasons = np.concatenate([chunk.reasons for chunk in chunks])
    rejected = {images.id(int(place)): str(reasons[place]) for place in np.flatnonzero(reasons != "")}
    if len(rejected) == len(images):
        first_id, reason = next(iter(rejected.items()))
        raise ImageError(f"none of the {len(images)} images can be decoded. The first, {first_id}: {reason}")
    chunks = [chunk for chunk in chunks if len(chunk.positions)]
    return Features(
        np.concatenate([chunk.values for chunk in chunks], axis=1),
        np.concatenate([chunk.group_bytes for chunk in chunks], axis=1),
        np.concatenate([chunk.original_bytes for chunk in chunks]),
        np.concatenate([chunk.positions for chunk in chunks]),
        rejected,
    )


def _cached_chunk(images: GroupedImages, places: range, backbone: Backbone, folder: Path | None) -> _Chunk:
    if folder is None:
        return _make_chunk(images, places, backbone)
    key = json.dumps([backbone.key, [images.key(place) for place in places]])
    path = folder / f"{xxhash.xxh3_128_hexdigest(key.encode())}.npz"
    if path.exists():
        with np.load(path) as kept:
            return _Chunk(*(kept[name] for name in _Chunk._fields))
    chunk = _make_chunk(images, places, backbone)
    if not chunk.reasons.any():  # a rejected image is tried again: its reason may be gone by then
        buffer = io.BytesIO()
        np.savez(buffer, **chunk._asdict())
        write_atomic(path, [buffer.getvalue()])
    return chunk


def _make_chunk(images: GroupedImages, places: range, backbone: Backbone) -> _Chunk:
    views: list[Views] = []
    positions: list[int] = []
    reasons: list[str] = []
    for offset, place in enumerate(places):
        reason = ""
        try:
            views.append(images.views(place))
            positions.append(offset)
        except (ImageError, RecordError) as error:
            reason = str(error)
        reasons.append(reason)
    num_groups = len(images.groups)
    if not views:
        none = np.empty((num_groups, 0), dtype=np.int64)
        return _Chunk(none[..., None].astype(np.float32), none, none[0], none[0], np.array(reasons))
    crops = np.stack([view.crops for view in views], axis=1)  # [groups, images, px, px, 3]
    flat = crops.reshape(-1, *crops.shape[2:])
    parts = [backbone(flat[first : first + FORWARD_IMAGES]) for first in range(0, len(flat), FORWARD_IMAGES)]
    return _Chunk(
        np.concatenate(parts).reshape(num_groups, len(views), -1),
        np.stack([view.group_bytes for view in views], axis=1).astype(np.int64),
        np.array([view.original_bytes for view in views], dtype=np.int64),
        np.array(positions, dtype=np.int64),
        np.array(reasons),
    )
