"""What a loader must offer to be measured beside the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.config.storage import StorageConfig

AUGMENT = AugmentConfig()
"""The same work for all: random-resized-crop (8 to 100 % of the area, 3:4 to 4:3) and horizontal flip."""


class SourceImage(NamedTuple):
    """A JPEG file and its class index."""

    path: str
    label: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One measurement: whole epochs, shuffled, through one loader."""

    loader: str
    """A scan level (ours), or a peer's name in the catalog."""
    decode: str
    """The decoder: `loader.decode` of ours, the peer's own in the catalog."""
    label: str
    """The named label that batches carry."""
    storage: StorageConfig
    settings: LoaderConfig
    """Ours, but for `decode`. Peers are given its `num_workers` and `prefetch_batches`, and have filters of
    their own (in the catalog)."""
    image_size: int
    batch_size: int
    num_epochs: int = 1
    seed: int = 0
    bucket: str | None = None
    """File of the throttle that processes share (null: this process has its own)."""
    model_images_per_s: float | None = None
    """Speed of the consumer that batches are handed to; None takes them as fast as they come."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Job:
        """The job that `to_json` wrote."""
        nested = {
            "storage": StorageConfig(**values["storage"]),
            "settings": LoaderConfig(**values["settings"]),
        }
        return cls(**{**values, **nested})


class Images(Protocol):
    """uint8 [B, H, W, 3] or [B, 3, H, W]: a torch, numpy or tensorflow array."""

    @property
    def shape(self) -> Any: ...

    @property
    def dtype(self) -> Any: ...


class Peer(Protocol):
    """A loader: a module of this folder."""

    def batches(self, folder: Path, job: Job) -> Iterator[Images]:
        """Open, and give the batches of `job.num_epochs` epochs; workers end with the iterator."""
        ...


class Format(Protocol):
    """What a peer reads: the same module."""

    def build(self, images: Sequence[SourceImage], folder: Path) -> None:
        """Write the images into a new, empty folder."""
        ...
