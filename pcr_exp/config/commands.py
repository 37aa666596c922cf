"""Settings of the commands that prepare, train, draw and demonstrate, and settings shared by all commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from omegaconf import MISSING

from pcr_exp.config.check import (
    INNER_SHARE,
    PATH,
    SHARE,
    Bound,
    at_least,
    check_fields,
    each,
    one_of,
    or_null,
    require,
)
from pcr_exp.config.components import component, names
from pcr_exp.config.crops import CropSettings, crops_of
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.loader import LoaderConfig, StorageConfig, check_lanes, num_slots
from pcr_exp.config.mixture import MixtureConfig, check_training
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.related_methods import ActivationsConfig, EchoConfig, GradientsConfig, NetworkConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.config.training import ModelConfig, TaskConfig, TrainingConfig

_PROJECT = Bound(
    lambda name: 1 <= len(name) <= 128 and not set(name) & set("/\\#?%:"),
    "1 to 128 characters without / \\ # ? % and :, as W&B wants them",
)
_TAGS = each(lambda tag: 1 <= len(tag) <= 64, "tags of 1 to 64 characters each, as W&B wants them")


@dataclass(kw_only=True, slots=True)
class TrackingConfig:
    """Where training curves are logged, besides the run directory."""

    name: Annotated[str, one_of("none", "wandb")] = MISSING
    """`none` or `wandb`."""
    mode: Annotated[str, one_of("offline", "online")] = "offline"
    """W&B mode: `offline` writes files, `online` uploads during the run."""
    project: Annotated[str, _PROJECT] = "pcr-exp"
    """W&B project."""
    entity: str | None = None
    """W&B user or team; null: your default."""
    tags: Annotated[list[str], _TAGS] = field(default_factory=list)
    """Tags to find runs by."""

    def __post_init__(self) -> None:
        check_fields(self, "tracking")


def no_tracking() -> TrackingConfig:
    """Return settings that write files only."""
    return TrackingConfig(name="none")


@dataclass(kw_only=True, slots=True)
class RunnerConfig:
    """Settings of all programs that read data or train."""

    components: list[str] = field(default_factory=list)
    """Your own packages of datasets, models, scan policies and codecs; see `pcr_exp.config.components`. Name
    them on the command line only: composing a configuration needs what they register."""
    smoke: dict[str, Any] = field(default_factory=dict)
    """Overrides by key for `runner=smoke`, a trial of seconds on the embedded dataset."""
    note: dict[str, Any] = field(default_factory=dict)
    """Notes on an experiment for its readers: the result it shows, the papers, and its cost."""
    dry_run: bool = False
    """Show what would run and what it would take, and do nothing; `--dry-run` is the same."""


@dataclass(kw_only=True, slots=True)
class StudyConfig(RunnerConfig):
    """Settings of all programs that measure the images of one dataset."""

    dataset: DatasetConfig = MISSING
    out_root: Annotated[str, PATH] = MISSING
    """Results go to `<out_root>/<id>`. The id is readable, and ends in a key of everything that determines
    them."""
    out: Annotated[str | None, PATH] = None
    """Folder of the results, instead of `<out_root>/<id>`. A folder with results of other settings or images
    is refused."""

    @property
    def place(self) -> str:
        """The folder of the results, as shown to users."""
        return f"{self.out_root}/<id>" if self.out is None else self.out


OF_THE_COMMAND = ("smoke", "note", "dry_run")
"""Keys of RunnerConfig that state how or why a command is run. Runs do not record them."""


@dataclass(kw_only=True, slots=True)
class PrepareConfig(RunnerConfig):
    """Settings of `python -m experiments.prepare`."""

    dataset: DatasetConfig = MISSING
    records: RecordsConfig = field(default_factory=RecordsConfig)
    check: Annotated[str, one_of("none", "times", "content")] = "none"
    """Compare every image with the source of the records, and change nothing. `times` (`--check`) compares
    names, labels, sizes and times; `content` (`--check=content`) also compares every byte."""
    tracking: TrackingConfig = field(default_factory=no_tracking)
    out: Annotated[str, PATH] = "outputs/prepare/${dataset.name}"
    """Folder of the table of encoded bytes, written if tracking is on."""

    def __post_init__(self) -> None:
        self.check = {"True": "times", "False": "none"}.get(str(self.check), self.check)  # once a bool
        check_fields(self)


@dataclass(kw_only=True, slots=True)
class TrainConfig(RunnerConfig):
    """Settings of `python -m experiments.train`."""

    dataset: DatasetConfig = MISSING
    records: RecordsConfig = field(default_factory=RecordsConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = MISSING
    scan: ScanConfig = MISSING
    storage: StorageConfig = MISSING
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    echo: EchoConfig = field(default_factory=EchoConfig)
    activations: ActivationsConfig = field(default_factory=ActivationsConfig)
    training: TrainingConfig = MISSING
    gradients: GradientsConfig = field(default_factory=GradientsConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    world_size: Annotated[int, at_least(1)] = 1
    """Processes that train together. Each reads its share of `training.global_batch_size`."""
    tracking: TrackingConfig = MISSING
    seed: Annotated[int, at_least(0)] = 0
    """Seed of initial weights, orders and augmentation."""
    runs_root: Annotated[str, PATH] = "outputs/runs"
    """Folder that contains a folder for each run."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_lanes(self.loader.lanes, self.num_slots, self.world_size)
        if isinstance(self.dataset, MixtureConfig):
            check_training(self, self.dataset)
        _check_targets(self.dataset.targets)
        num_groups = self.records.num_groups
        if num_groups is not None:
            self.scan.fit(num_groups)
            self.echo.fit(num_groups)

    @property
    def num_slots(self) -> int:
        """Micro-batches per global batch."""
        training = self.training
        return num_slots(training.batch_size, training.global_batch_size, self.world_size)

    @property
    def crops(self) -> CropSettings:
        """Crops for training and evaluation."""
        training = self.training
        return crops_of(self.dataset.augment, self.loader, training.image_size, training.eval_image_size)


def _check_targets(targets: Mapping[str, float]) -> None:
    """Refuse a target of something that no task is judged by: no run would use it."""
    headlines = [getattr(component("task", task).build, "headline", None) for task in names("task")]
    known = sorted({headline.name for headline in headlines if headline is not None})
    wanted = f"the primary metric of a task in its place: {', '.join(known)}"
    for metric, target in targets.items():
        require(metric in known, f"dataset.targets.{metric}", target, wanted)


@dataclass(kw_only=True, slots=True)
class FiguresConfig:
    """Settings of `python -m experiments.figures`."""

    runs_root: Annotated[str, PATH] = "outputs/runs"
    """Folder of finished runs."""
    quality_root: Annotated[str, PATH] = "outputs/quality"
    """Folder of results of `quality`."""
    out: Annotated[str, PATH] = "outputs/figures"
    """Folder for figures and tables."""
    target: Annotated[float | None, or_null(SHARE, "a share in (0, 1], or null")] = None
    """Target value of the primary metric (such as top-1) for time to accuracy; null: each run's own."""
    exclusive_only: bool = True
    """Show seconds only for runs that had the machine to themselves: others took at most 5 % of the CPU. If
    false, `hardware` marks runs that did not."""
    compare: str | None = None
    """A dotted key, such as `loader.decode`. Runs that differ only in it are also compared seed by seed."""
    reference: str | None = None
    """Value of `compare` that the other values are compared with."""
    timing_root: Annotated[str | None, PATH] = None
    """Folder of short exclusive runs (`training.stop_after_s`); null: none. Their seconds per epoch, times
    the epochs of the runs in `runs_root`, give times to accuracy at their bandwidths."""
    targets_root: Annotated[str, PATH] = "outputs/fair_baseline"
    """Folder of `fair_baseline.csv` tables with the targets of those times."""
    dry_run: bool = False
    """As in RunnerConfig."""
    tracking: TrackingConfig = field(default_factory=no_tracking)

    def __post_init__(self) -> None:
        check_fields(self)
        given = self.compare is None or self.reference is not None
        require(given, "reference", self.reference, f"a value of {self.compare} to compare others with")
        used = self.reference is None or self.compare is not None
        require(used, "reference", self.reference, "null, or compare=<key> with it: the key of this value")


_WITH_BASELINE = Bound(lambda scans: "baseline" in scans, "scan levels with baseline among them")
_LIMITED = Bound(INNER_SHARE.holds, f"{INNER_SHARE.wanted}: at 1 storage is no limit")


@dataclass(kw_only=True, slots=True)
class DemoConfig(RunnerConfig):
    """`python -m experiments.demo`: all steps on the embedded images, from preparing to the report."""

    labels: Annotated[list[str], Bound(bool, "at least one label of the dataset")] = MISSING
    """Labels to train on. The result shown is the table of the first one."""
    scans: Annotated[list[str], _WITH_BASELINE] = MISSING
    """Options of the group `scan` to train with, `baseline` among them."""
    overrides: list[str] = field(default_factory=list)
    """Settings of every training run, as on the command line of `experiments.train`."""
    baseline_share: Annotated[float, _LIMITED] = 0.5
    """Storage supplies this share of the images/s that this machine trains with baseline, measured first."""
    quality_images: Annotated[int, at_least(1)] = 100
    """Number of images to measure MS-SSIM on."""
    tracking: TrackingConfig = field(default_factory=no_tracking)
    """Tracking of its measurements, each of its runs, and its report."""
    out: Annotated[str, PATH] = "outputs/demo"
    """Folder for all of its output."""

    def __post_init__(self) -> None:
        check_fields(self)
