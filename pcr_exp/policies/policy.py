"""Which scan group each record is read at: the interface between the loader, training and scan policies.

The loader asks a policy at each record (`group`), from the threads that read ahead. Training tells it of each
update (`observe`), lets it probe the model between epochs (`wanted_probe`, `decide`) and makes a row of what
it decided (`take_decision`), all from the main thread.

A decision that follows from training must not depend on how far reading had run ahead when it fell, or a
resumed run would differ. So a policy may say that an epoch is not decided yet (`group` gives None): nothing
of it is read before the decision. Only `balanced`, which follows the clock, decides within epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from pcr_exp.config.check import require
from pcr_exp.config.components import build, register
from pcr_exp.config.scan import ScanConfig
from pcr_exp.storage.protocol import Counts
from pcr_exp.system.columns import Column

if TYPE_CHECKING:
    from pcr_exp.policies.consensus import Consensus
    from pcr_exp.records.index import RecordIndex


_MEASURES = {
    "ms_ssim": "mean MS-SSIM of whole images",
    "cosine": "gradient cosine to all groups",
    "train_loss": "training loss of the trial",
    "tune_loss": "loss on tune images after the trial",
    "val_loss": "validation loss after the trial",
    "images_per_s": "supply (images/s)",
    "loss_bound": "headline lost, upper end of the 95 % interval",
}


def describe_measure(measure: str) -> str:
    """Words for the scores of a `Decision`, for logs and figures; a user's own measure by its name."""
    return _MEASURES.get(measure, measure.replace("_", " "))


@dataclass(frozen=True, slots=True)
class SimilarityProbe:
    """Mean MS-SSIM of whole training images decoded at each candidate, against all scan groups."""

    candidates: tuple[int, ...]
    num_images: int


@dataclass(frozen=True, slots=True)
class CosineProbe:
    """Cosine between the gradients of one fixed sample at each candidate and at all scan groups."""

    candidates: tuple[int, ...]
    num_images: int


@dataclass(frozen=True, slots=True)
class TrialProbe:
    """Loss after a short while of training at each candidate, each from the model as it is."""

    candidates: tuple[int, ...]
    num_steps: int
    judge: str
    """`train`: mean loss of the trial's second half; `tune`: loss on the images to tune by, after it."""


@dataclass(frozen=True, slots=True)
class ToleranceProbe:
    """An upper bound on the headline's loss if a model learns at each candidate instead of at all groups.

    The score is the upper end of the loss's 95 % interval, measured with a linear classifier on features of a
    pretrained network (`pcr_exp.measuring.tolerance`).
    """

    candidates: tuple[int, ...]
    num_images: int
    image_size: int
    deployment: str
    """`full`: the model is used at all groups; `same`: at the candidate."""


Probe: TypeAlias = SimilarityProbe | CosineProbe | TrialProbe | ToleranceProbe


@dataclass(frozen=True, slots=True)
class Update:
    """Counts and seconds of one update."""

    epoch: int
    """From 0."""
    ends_epoch: bool
    num_images: int
    """Trained on, repeats of data echoing included."""
    num_fresh: int
    """Those of `num_images` that had to be read."""
    group: int
    """Scan group of the record that was read last, of those in use."""
    loss: float
    train_s: float
    """This and `wait_s`: since the run began."""
    wait_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """A scan group that a policy has chosen, and what it compared."""

    group: int
    measure: str
    """The kind of the scores; `given` where nothing was compared."""
    scores: Mapping[int, float] = field(default_factory=dict)
    """By candidate."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Values of the columns that the policy declares (`declared_columns`)."""


def declared_columns(policy: object) -> tuple[Column, ...]:
    """Return what a policy's `policy` rows have beside the usual columns: its attribute `columns`, if any.

    `Decision.columns` gives their values. A column named `measure` says which words it uses for `measure`.
    """
    return tuple(getattr(policy, "columns", ()))


class ScanPolicy(Protocol):
    """Decides; see the module's text for who calls what."""

    by_epoch: bool = False
    """Whether a record's group follows from the epoch alone: such a policy needs not be told of training."""
    kept_bytes: Mapping[int, int] | None = None
    """By record, the bytes that a cache is to keep, of others none; None: it keeps what is read."""

    @property
    def candidates(self) -> tuple[int, ...]:
        """Every scan group that `group` may give, rising."""

    def group(self, epoch: int, record: int) -> int | None:
        """Scan group (from 1) to read `record` at in `epoch`, both from 0; None: not decided yet.

        Asked in the order of reading, by one thread at a time; of all ranks alike.
        """

    def observe(self, update: Update) -> None:
        """Take note of an update."""

    def wanted_probe(self, epoch: int) -> Probe | None:
        """The probe to make before `epoch` is read; until `decide` it is not decided."""

    def decide(self, scores: Mapping[int, float]) -> None:
        """Choose, given the score of each candidate in the probe that was wanted."""

    def take_decision(self) -> Decision | None:
        """Decisions since the last call."""

    def state_dict(self) -> dict[str, Any]:
        """The state with which a resumed run decides as this one would have."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""


@dataclass(frozen=True, slots=True)
class PolicyInputs:
    """A run's facts for the policy that is opened for it."""

    seed: int
    """The run's; what a policy draws follows from it."""
    consensus: Consensus
    """Among the run's ranks."""
    index: RecordIndex
    """The index of the records that are trained on."""
    counts: Callable[[], Counts] = Counts
    """Bytes that storage delivered so far."""


def open_policy(config: ScanConfig, run: PolicyInputs) -> ScanPolicy:
    """Open the policy that is registered for these settings.

    Raises:
        ConfigError: no policy has such settings.
        RecordError: the records lack a candidate.
    """
    policy: ScanPolicy = build("scan", config, run)
    return policy


def require_tuning(config: ScanConfig, num_tune: int) -> None:
    """Raise ConfigError if the policy judges by images to tune by and there are none."""
    wanted = "train, as no image is held out to tune by (dataset.tune_fraction)"
    require(num_tune > 0 or not config.uses_tune_split, "scan.judge", "tune", wanted)


class EpochPolicy:
    """The members of a policy that follows epoch and record alone: nothing is observed, probed or saved."""

    by_epoch = True
    kept_bytes: Mapping[int, int] | None = None

    def observe(self, update: Update) -> None:
        """Nothing that is observed changes it."""

    def wanted_probe(self, epoch: int) -> Probe | None:  # noqa: ARG002
        """None."""
        return None

    def decide(self, scores: Mapping[int, float]) -> None:
        """There was no probe."""

    def take_decision(self) -> Decision | None:
        """There is nothing to decide."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is no state to continue from."""


class StaticScan(EpochPolicy):
    """One scan group for the whole run."""

    def __init__(self, group: int) -> None:
        self.candidates: tuple[int, ...] = (group,)

    def group(self, epoch: int, record: int) -> int | None:  # noqa: ARG002
        """The one group."""
        return self.candidates[0]


@register("scan", "static", ScanConfig)
def open_static(config: ScanConfig, run: PolicyInputs) -> StaticScan:  # noqa: ARG001
    """Needs nothing of the run."""
    return StaticScan(config.group)


class OneGroup(StaticScan):
    """One scan group at a time: what most policies have in common. They add when it changes, and to what."""

    by_epoch = False

    def __init__(self, group: int, candidates: Iterable[int], *, undecided_from: int | None = None) -> None:
        """Begin with `group`; epochs from `undecided_from` on wait for a decision (None: there are none)."""
        super().__init__(group)
        self.candidates = tuple(sorted({group, *candidates}))
        self.current = group
        self.undecided_from = undecided_from
        self._news: Decision | None = Decision(group, "given")

    def group(self, epoch: int, record: int) -> int | None:  # noqa: ARG002
        """The current group, where that is decided."""
        undecided = self.undecided_from is not None and epoch >= self.undecided_from
        return None if undecided else self.current

    def choose(self, decision: Decision, *, undecided_from: int | None = None) -> None:
        """Read at another group from now on."""
        self.current, self._news = decision.group, decision
        self.undecided_from = undecided_from

    def take_decision(self) -> Decision | None:
        """The latest; at first the group that it began with, unless another takes its place at once."""
        news, self._news = self._news, None
        return news

    def state_dict(self) -> dict[str, Any]:
        """The group, and how long it is decided."""
        return {"group": self.current, "undecided_from": self.undecided_from}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the saved group; that it was chosen is told already."""
        self.current, self.undecided_from, self._news = state["group"], state["undecided_from"], None
