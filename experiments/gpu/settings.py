"""Settings of `python -m experiments.gpu`: what only a GPU can show, in parts of a few minutes each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pcr_exp.config.check import PATH, Bound, above, at_least, check_fields, one_of, or_null
from pcr_exp.config.commands import RunnerConfig, TrackingConfig, no_tracking

PARTS = ("pack", "tests", "memory", "training")
_SOME = Bound(bool, "at least one")
_MODELS, _DATASETS = ("resnet18", "shufflenet_v2_x1_0"), ("ham10000", "celebahq")
_WAYS = ("none", "recompute", "lossless", "error_bounded")
_SCANS, _STORAGES = ("baseline", "group_1", "group_2", "group_5"), ("unlimited", "gigabit_nfs")
_ARCHIVE = or_null(Bound(lambda path: path.endswith(".tar.gz"), "a file that ends in .tar.gz"))


@dataclass(kw_only=True, slots=True)
class GpuConfig(RunnerConfig):
    """One part of what a GPU is asked, with its results in `out` and, if wanted, in one archive."""

    part: Annotated[str, one_of(*PARTS)] = "tests"
    """`pack`: copy some images into `data_root`, for a machine that has no more; `tests`: run those marked
    `gpu`; `memory`: bytes and seconds of updates, the largest batch, clocks and NCCL; `training`: short runs
    on real images, for images/s and the share of time spent waiting for data."""
    max_s: Annotated[float, above(0)] = 480.0
    """Begin nothing new after so many seconds; what was left out is named."""
    device: str = "auto"
    """`cpu`, `cuda` or another of torch's; `auto`: a GPU if there is one."""
    models: Annotated[list[str], _SOME] = field(default_factory=lambda: list(_MODELS))
    """Options of the group `model`."""
    image_size: Annotated[int, at_least(1)] = 224
    """Pixels of a side of what models see."""
    tests: Annotated[str, PATH] = "tests"
    """A folder of tests, or one file."""
    ways: Annotated[list[str], _SOME] = field(default_factory=lambda: list(_WAYS))
    """Of keeping activations: options of the group `activations`."""
    batch_size: Annotated[int, at_least(1)] = 128
    """Images of an update."""
    num_updates: Annotated[int, at_least(1)] = 20
    """Updates that are timed, after a few that are not."""
    max_batch_size: Annotated[int, at_least(1)] = 16384
    """The largest batch is looked for up to here."""
    reduce_mib: Annotated[float, above(0)] = 64.0
    """Size of what NCCL sums up."""
    datasets: Annotated[list[str], _SOME] = field(default_factory=lambda: list(_DATASETS))
    """Options of the group `dataset`."""
    source_root: Annotated[str, PATH] = "../shared/data"
    """What `pack` copies from: a folder for each of `datasets`, in its official layout."""
    max_images: Annotated[int, at_least(1)] = 400
    """Images of a dataset that `pack` copies."""
    data_root: Annotated[str, PATH] = "data/gpu"
    """What `pack` copies to and `training` reads: for each of `datasets` a folder of class folders."""
    scans: Annotated[list[str], _SOME] = field(default_factory=lambda: list(_SCANS))
    """Options of the group `scan` to train at."""
    storages: Annotated[list[str], _SOME] = field(default_factory=lambda: list(_STORAGES))
    """Options of the group `storage` to train from."""
    run_s: Annotated[float, above(0)] = 10.0
    """Seconds of training and waiting of each run."""
    num_workers: Annotated[int | None, or_null(at_least(0), "null or at least 0")] = None
    """Decoding processes (null: all cores but two)."""
    overrides: list[str] = field(default_factory=list)
    """More settings of the models and runs, as on the command line of `experiments.train`."""
    out: Annotated[str, PATH] = "outputs/gpu"
    """Folder of what was measured."""
    tracking: TrackingConfig = field(default_factory=no_tracking)
    archive: Annotated[str | None, PATH, _ARCHIVE] = None
    """A .tar.gz of `out`, for a machine that gives few files back; null: none."""

    def __post_init__(self) -> None:
        check_fields(self)
