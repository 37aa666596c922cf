"""The settings of commands that prepare, train, draw and demonstrate; and what all commands share."""

from __future__ import annotations

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
    one_of,
    or_null,
    require,
)
from pcr_exp.config.crops import CropSettings, crops_of
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.loader import LoaderConfig, StorageConfig, check_lanes, num_slots
from pcr_exp.config.mixture import MixtureConfig, check_training
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.related_methods import ActivationsConfig, EchoConfig, GradientsConfig, NetworkConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.config.training import ModelConfig, TaskConfig, TrainingConfig


@dataclass(kw_only=True, slots=True)
class TrackingConfig:
    """Where curves go besides the run directory."""

    name: Annotated[str, one_of("none", "wandb")] = MISSING
    """`none` or `wandb`."""
    mode: Annotated[str, one_of("offline", "online")] = "offline"
    """W&B's mode: `offline` writes files, `online` uploads while it runs."""
    project: str = "pcr-exp"
    """The W&B project."""
    entity: str | None = None
    """The W&B user or team; null: your default."""
    tags: list[str] = field(default_factory=list)
    """Words to find runs by."""

    def __post_init__(self) -> None:
        check_fields(self, "tracking")


def no_tracking() -> TrackingConfig:
    """Nothing is shown besides the files."""
    return TrackingConfig(name="none")


@dataclass(kw_only=True, slots=True)
class RunnerConfig:
    """Settings of all programs that read data or train."""

    components: list[str] = field(default_factory=list)
    """Your own packages of datasets, models, scan policies and codecs; see `pcr_exp.config.components`. Only
    the command line can name them, for what they register is needed to compose a configuration."""
    smoke: dict[str, Any] = field(default_factory=dict)
    """Overrides by key for `runner=smoke`: a trial in seconds, on the embedded dataset."""
    note: dict[str, Any] = field(default_factory=dict)
    """An experiment's note for people: the result it shows, the papers, and its cost."""
    dry_run: bool = False
    """Say what would run and what it would take, and do nothing; `--dry-run` is the same."""


@dataclass(kw_only=True, slots=True)
class StudyConfig(RunnerConfig):
    """Settings of all programs that measure the images of one dataset."""

    dataset: DatasetConfig = MISSING
    out_root: Annotated[str, PATH] = MISSING
    """Results go to `<out_root>/<id>`; the id is readable, and ends in a key of all that decides them."""
    out: Annotated[str | None, PATH] = None
    """Folder of the results in place of `<out_root>/<id>`. One with results of other settings or images is
    refused."""

    @property
    def place(self) -> str:
        """The folder of the results, for people."""
        return f"{self.out_root}/<id>" if self.out is None else self.out


OF_THE_COMMAND = ("smoke", "note", "dry_run")
"""Keys of RunnerConfig that say how a command is carried out, or why: no run remembers them."""


@dataclass(kw_only=True, slots=True)
class PrepareConfig(RunnerConfig):
    """Settings of `python -m experiments.prepare`."""

    dataset: DatasetConfig = MISSING
    records: RecordsConfig = field(default_factory=RecordsConfig)
    check: Annotated[str, one_of("none", "times", "content")] = "none"
    """Compare every image with what the records were made of, and change nothing: `times` (`--check`) by
    names, labels, sizes and times, `content` (`--check=content`) byte by byte as well."""
    tracking: TrackingConfig = field(default_factory=no_tracking)
    out: Annotated[str, PATH] = "outputs/prepare/${dataset.name}"
    """Where the table of what was encoded goes, if it is tracked."""

    def __post_init__(self) -> None:
        self.check = {"True": "times", "False": "none"}.get(str(self.check), self.check)  # as once
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
    """Processes that train together; each reads its share of `training.global_batch_size`."""
    tracking: TrackingConfig = MISSING
    seed: Annotated[int, at_least(0)] = 0
    """Seed of weights, orders and augmentation."""
    runs_root: Annotated[str, PATH] = "outputs/runs"
    """Folder in which each run has a folder of its own."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_lanes(self.loader.lanes, self.num_slots, self.world_size)
        if isinstance(self.dataset, MixtureConfig):
            check_training(self, self.dataset)
        num_groups = self.records.num_groups
        if num_groups is not None:
            self.scan.fit(num_groups)
            self.echo.fit(num_groups)

    @property
    def num_slots(self) -> int:
        """Batches that a global batch is made of."""
        training = self.training
        return num_slots(training.batch_size, training.global_batch_size, self.world_size)

    @property
    def crops(self) -> CropSettings:
        """Crops to train and evaluate on."""
        training = self.training
        return crops_of(self.dataset.augment, self.loader, training.image_size, training.eval_image_size)


@dataclass(kw_only=True, slots=True)
class FiguresConfig:
    """Settings of `python -m experiments.figures`."""

    runs_root: Annotated[str, PATH] = "outputs/runs"
    """Folder of finished runs."""
    quality_root: Annotated[str, PATH] = "outputs/quality"
    """Folder of what `quality` measured."""
    out: Annotated[str, PATH] = "outputs/figures"
    """Folder of figures and tables."""
    target: Annotated[float | None, or_null(SHARE, "a share in (0, 1], or null")] = None
    """Value of the primary metric (such as top-1) that time is measured to; null: each run's own."""
    exclusive_only: bool = True
    """Show seconds only of runs that had the machine to themselves: others took at most 5 % of the CPU. With
    false `hardware` says which did not."""
    compare: str | None = None
    """A dotted key, such as `loader.decode`: runs that differ in it alone are compared seed by seed, too."""
    reference: str | None = None
    """The value of `compare` that the others are compared with."""
    timing_root: Annotated[str | None, PATH] = None
    """Folder of short exclusive runs (`training.stop_after_s`), whose seconds per epoch times the epochs of
    the runs in `runs_root` are times to accuracy at their bandwidths; null: none."""
    targets_root: Annotated[str, PATH] = "outputs/fair_baseline"
    """Folder of `fair_baseline.csv` tables, whose targets those times are to."""
    dry_run: bool = False
    """As RunnerConfig's."""
    tracking: TrackingConfig = field(default_factory=no_tracking)

    def __post_init__(self) -> None:
        check_fields(self)
        given = self.compare is None or self.reference is not None
        require(given, "reference", self.reference, f"a value of {self.compare} to compare others with")


_WITH_BASELINE = Bound(lambda scans: "baseline" in scans, "scan levels with baseline among them")
_LIMITED = Bound(INNER_SHARE.holds, f"{INNER_SHARE.wanted}: at 1 storage is no limit")


@dataclass(kw_only=True, slots=True)
class DemoConfig(RunnerConfig):
    """`python -m experiments.demo`: the whole slice on the embedded images."""

    labels: Annotated[list[str], Bound(bool, "at least one label of the dataset")] = MISSING
    """Labels to train on; the first one's table is shown as the result."""
    scans: Annotated[list[str], _WITH_BASELINE] = MISSING
    """Options of the group `scan` to train at, `baseline` among them."""
    overrides: list[str] = field(default_factory=list)
    """Settings of every training run, as on the command line of `experiments.train`."""
    baseline_share: Annotated[float, _LIMITED] = 0.5
    """Storage supplies this share of the baseline images/s that this machine trains, measured first."""
    quality_images: Annotated[int, at_least(1)] = 100
    """Images whose MS-SSIM is measured."""
    tracking: TrackingConfig = field(default_factory=no_tracking)
    """For its measurements, each of its runs, and its report."""
    out: Annotated[str, PATH] = "outputs/demo"
    """Folder of everything that it makes."""

    def __post_init__(self) -> None:
        check_fields(self)
