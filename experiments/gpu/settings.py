"""Settings of `python -m experiments.gpu`: what only a GPU can show, in parts of a few minutes each."""

from __future__ import annotations

from dataclasses import dataclass, field

from pcr_exp.config.check import expanded, require
from pcr_exp.config.commands import RunnerConfig, TrackingConfig, no_tracking

PARTS = ("pack", "tests", "memory", "training")


@dataclass(kw_only=True, slots=True)
class GpuConfig(RunnerConfig):
    """One part of what a GPU is asked, with its results in `out` and, if wanted, in one archive."""

    part: str = "tests"
    """`pack`: copy some images into `data_root`, for a machine that has no more; `tests`: run those marked
    `gpu`; `memory`: bytes and seconds of updates, the largest batch, clocks and NCCL; `training`: short runs
    on real images, for images/s and the share of time spent waiting for data."""
    max_s: float = 480.0
    """Begin nothing new after so many seconds; what was left out is named."""
    device: str = "auto"
    """`cpu`, `cuda` or another of torch's; `auto`: a GPU if there is one."""
    models: list[str] = field(default_factory=lambda: ["resnet18", "shufflenet_v2_x1_0"])
    """Options of the group `model`."""
    image_size: int = 224
    """Pixels of a side of what models see."""
    tests: str = "tests"
    """A folder of tests, or one file."""
    ways: list[str] = field(default_factory=lambda: ["none", "recompute", "lossless", "error_bounded"])
    """Of keeping activations: options of the group `activations`."""
    batch_size: int = 128
    """Images of an update."""
    num_updates: int = 20
    """Updates that are timed, after a few that are not."""
    max_batch_size: int = 16384
    """The largest batch is looked for up to here."""
    reduce_mib: float = 64.0
    """Size of what NCCL sums up."""
    datasets: list[str] = field(default_factory=lambda: ["ham10000", "celebahq"])
    """Options of the group `dataset`."""
    source_root: str = "../shared/data"
    """What `pack` copies from: a folder for each of `datasets`, in its official layout."""
    max_images: int = 400
    """Images of a dataset that `pack` copies."""
    data_root: str = "data/gpu"
    """What `pack` copies to and `training` reads: for each of `datasets` a folder of class folders."""
    scans: list[str] = field(default_factory=lambda: ["baseline", "group_1", "group_2", "group_5"])
    """Options of the group `scan` to train at."""
    storages: list[str] = field(default_factory=lambda: ["unlimited", "gigabit_nfs"])
    """Options of the group `storage` to train from."""
    run_s: float = 10.0
    """Seconds of training and waiting of each run."""
    num_workers: int | None = None
    """Decoding processes (null: all cores but two)."""
    overrides: list[str] = field(default_factory=list)
    """More settings of the models and runs, as on the command line of `experiments.train`."""
    out: str = "outputs/gpu"
    """Folder of what was measured."""
    tracking: TrackingConfig = field(default_factory=no_tracking)
    archive: str | None = None
    """A .tar.gz of `out`, for a machine that gives few files back; null: none."""

    def __post_init__(self) -> None:
        for key in ("tests", "source_root", "data_root", "out"):
            setattr(self, key, expanded(getattr(self, key)))
        self.archive = None if self.archive is None else expanded(self.archive)
        require(self.part in PARTS, "part", self.part, " or ".join(PARTS))
        for key in ("max_s", "reduce_mib", "run_s"):
            require(getattr(self, key) > 0, key, getattr(self, key), "above 0")
        for key in ("image_size", "batch_size", "num_updates", "max_batch_size", "max_images"):
            require(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        for key in ("models", "ways", "datasets", "scans", "storages"):
            require(bool(getattr(self, key)), key, getattr(self, key), "at least one")
        workers = self.num_workers
        require(workers is None or workers >= 0, "num_workers", workers, "null or at least 0")
        named = self.archive is None or self.archive.endswith(".tar.gz")
        require(named, "archive", self.archive, "null or a file that ends in .tar.gz")
