"""Settings of `python -m experiments.evaluate`: trained networks at every scan group and decode mode."""

from __future__ import annotations

from dataclasses import dataclass, field

from omegaconf import MISSING

from pcr_exp.config.check import expanded, require
from pcr_exp.config.loader import DECODE_MODES, LoaderConfig
from pcr_exp.config.model import ModelConfig
from pcr_exp.config.records import NUM_GROUPS, RecordsConfig
from pcr_exp.config.runners import StudyConfig, TrackingConfig
from pcr_exp.config.scan import PAPER_GROUPS
from pcr_exp.config.scan_scripts import groups_of_script
from pcr_exp.config.training import TaskConfig

ALL = "all"
"""In place of a split: every image."""
IMAGE_SIZE = 224
"""Of networks that no run says it of."""
DEFAULT_MODEL = "efficientnet_lite0"
"""That of `configs/evaluate.yaml`: who has not asked for another takes the runs' own."""


@dataclass(kw_only=True, slots=True)
class EvaluateConfig(StudyConfig):
    """`python -m experiments.evaluate`: what a model is worth at scan groups that it was not trained at."""

    records: RecordsConfig = field(default_factory=RecordsConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    """Its headline is what the matrix of training and test groups shows."""
    model: ModelConfig = MISSING
    """What is evaluated, with `model.weights` or the published ones; `runs` bring their own."""
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    """`loader.decode` gives way to `decodes`."""
    tracking: TrackingConfig = MISSING
    runs: list[str] = field(default_factory=list)
    """Folders of finished runs, or folders that hold such: their checkpoints are evaluated."""
    classes: str | None = None
    """A file with the class of each of the model's outputs, one a line (its first word), by the names that
    the dataset has; null: the dataset's own classes in their order. ImageNet's 1,000 are wnids."""
    split: str = "val"
    """`train`, `tune` or `val`, which are read from records and made if they are missing; or `all`: every
    image that lies there, read from its file. No records are made, and nothing need be there to train on."""
    groups: list[int] = field(default_factory=lambda: list(PAPER_GROUPS))
    """Scan groups to look at; the original images (baseline) are always looked at, to compare with."""
    decodes: list[str] = field(default_factory=lambda: ["scaled"])
    """Values of `loader.decode` to look at."""
    image_size: int | None = None
    """Pixels of a side of what networks see; null: of `runs` what they were looked at with, else 224."""
    batch_size: int = 50
    """Images that go through the network together."""
    device: str = "auto"
    """`cpu`, `cuda` or another of torch's; `auto`: a GPU if there is one."""
    num_threads: int | None = None
    """torch's CPU threads (null: its own choice)."""
    seed: int = 0
    """Has no effect: an evaluation draws nothing at random."""
    out_root: str = "outputs/evaluate"

    def __post_init__(self) -> None:
        self.expand_places()
        self.runs = [expanded(folder) for folder in self.runs]
        self.classes = None if self.classes is None else expanded(self.classes)
        splits = ("train", "tune", "val", ALL)
        require(self.split in splits, "split", self.split, " or ".join(splits))
        inside = bool(self.groups) and all(1 <= group <= NUM_GROUPS for group in self.groups)
        require(inside, "groups", self.groups, f"scan groups, 1..{NUM_GROUPS}")
        if self.records.num_groups is not None:
            self.groups = groups_of_script("groups", self.groups, self.records.num_groups)
        self.groups = sorted(set(self.groups))
        known = bool(self.decodes) and set(self.decodes) <= set(DECODE_MODES)
        require(known, "decodes", self.decodes, f"some of {', '.join(DECODE_MODES)}")
        require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1")
        for key in ("image_size", "num_threads"):
            value = getattr(self, key)
            require(value is None or value >= 1, key, value, "null or at least 1")
