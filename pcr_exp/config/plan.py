"""A cluster described in numbers, for `python -m experiments.throughput plan=<cluster>`."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from pcr_exp.config.check import require
from pcr_exp.config.storage import StorageConfig


@dataclass(kw_only=True, slots=True)
class PlannedDataConfig:
    """What the cluster trains on: stated, or as the indexes of records on disk have it."""

    name: str = MISSING
    records: str | None = None
    """Folder of a split's records, with pcr/ and baseline/ in it: it has all numbers below. null: they are
    given here."""
    num_images: int | None = None
    """Of an epoch."""
    images_per_record: int | None = None
    """Images that one request reads."""
    image_bytes: dict[str, float] = field(default_factory=dict)
    """Mean bytes per image up to each scan level; `baseline` among them."""

    def __post_init__(self) -> None:
        stated = bool(self.num_images and self.images_per_record and self.image_bytes)
        require(
            (self.records is None) == stated,
            "plan.data.records",
            self.records,
            "a folder of records, or null and num_images, images_per_record and image_bytes beside it",
        )
        require(
            all(size > 0 for size in self.image_bytes.values()),
            "plan.data.image_bytes",
            self.image_bytes,
            "sizes above 0",
        )
        require(
            not stated or "baseline" in self.image_bytes,
            "plan.data.image_bytes",
            self.image_bytes,
            "baseline among the scan levels, for speed-ups are over it",
        )


@dataclass(kw_only=True, slots=True)
class PlanConfig:
    """Workers that train one model together and read from one storage system."""

    name: str = MISSING
    workers: int = MISSING
    """Each has its accelerator, and reads and decodes for it."""
    cores_per_worker: float = MISSING
    """CPU cores that decode."""
    model_images_per_s: dict[str, float] = MISSING
    """What one worker's accelerator trains, per model."""
    decode_images_per_s: dict[str, float] = MISSING
    """What one core decodes and crops, per scan level; a level that is not here is not planned."""
    storage: StorageConfig = MISSING
    """Shared by all workers."""
    reads_in_flight: int | None = None
    """Of one worker, at most; null: as many as our loader has for this storage."""
    data: PlannedDataConfig = MISSING
    epochs_to_accuracy: dict[str, float] = field(default_factory=dict)
    """Epochs until the accuracy that is wanted, per scan level; none: no time to accuracy."""
    max_workers: int = 1024
    """The figure over workers goes from 1 to this many, in powers of two."""
    out: str = "results/throughput_model/${plan.name}"

    def __post_init__(self) -> None:
        require(self.workers >= 1, "plan.workers", self.workers, "at least 1")
        require(self.max_workers >= 1, "plan.max_workers", self.max_workers, "at least 1")
        require(self.cores_per_worker > 0, "plan.cores_per_worker", self.cores_per_worker, "cores above 0")
        for key in ("model_images_per_s", "decode_images_per_s"):
            rates = getattr(self, key)
            require(
                bool(rates) and all(rate > 0 for rate in rates.values()),
                f"plan.{key}",
                rates,
                "at least one rate, all above 0",
            )
        require(
            "baseline" in self.decode_images_per_s,
            "plan.decode_images_per_s",
            self.decode_images_per_s,
            "baseline among the scan levels, for speed-ups are over it",
        )
        in_flight = self.reads_in_flight
        require(in_flight is None or in_flight >= 1, "plan.reads_in_flight", in_flight, "null or at least 1")
        require(
            all(epochs > 0 for epochs in self.epochs_to_accuracy.values()),
            "plan.epochs_to_accuracy",
            self.epochs_to_accuracy,
            "epochs above 0",
        )
