"""Which scan group each record is read at: the interface between the loader, training and scan policies.

The loader queries a policy for each record (`group`), from its read-ahead threads. Training reports each
update (`observe`), lets the policy probe the model between epochs (`wanted_probe`, `decide`) and writes a row
for each decision (`take_decision`), all from the main thread.

A decision based on training must not depend on how far reading was ahead at that moment, or a resumed run
would differ. So a policy may leave an epoch undecided (`group` returns None): nothing of it is read before
the decision. Only `balanced`, which depends on time measurements, decides within epochs.
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
    """Describe a `Decision`'s scores for logs and figures; a user's own measure goes by its name."""
    return _MEASURES.get(measure, measure.replace("_", " "))


@dataclass(frozen=True, slots=True)
class SimilarityProbe:
    """Mean MS-SSIM of whole training images decoded at each candidate, compared with all scan groups."""

    candidates: tuple[int, ...]
    num_images: int


@dataclass(frozen=True, slots=True)
class CosineProbe:
    """Cosine between the gradients of one fixed sample at each candidate and at all scan groups."""

    candidates: tuple[int, ...]
    num_images: int


@dataclass(frozen=True, slots=True)
class TrialProbe:
    """Loss after a short trial at each candidate, each starting from the current model."""

    candidates: tuple[int, ...]
    num_steps: int
    judge: str
    """`train`: mean loss over the trial's second half; `tune`: loss on the tuning images after the trial."""


@dataclass(frozen=True, slots=True)
class ToleranceProbe:
    """Upper bound on the drop in the primary metric if a model learns at each candidate, not all groups.

    The score is the upper end of the drop's 95 % interval, measured with a linear classifier on features of a
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
    """Counted from 0."""
    ends_epoch: bool
    num_images: int
    """Images trained on, including repeats of data echoing."""
    num_fresh: int
    """Those of `num_images` that had to be read."""
    group: int
    """Scan group of the most recently read record in use."""
    loss: float
    train_s: float
    """Seconds of training since the run began; `wait_s` counts those of waiting."""
    wait_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """A scan group that a policy has chosen, and the scores that it compared."""

    group: int
    measure: str
    """The kind of the scores; `given` if nothing was compared."""
    scores: Mapping[int, float] = field(default_factory=dict)
    """Score of each candidate."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Values of the columns that the policy declares (`declared_columns`)."""


def declared_columns(policy: object) -> tuple[Column, ...]:
    """Return the extra columns of a policy's `policy` rows: its attribute `columns`, if any.

    `Decision.columns` gives their values. A column named `measure` adds words that `measure` may have.
    """
    return tuple(getattr(policy, "columns", ()))


class ScanPolicy(Protocol):
    """Chooses scan groups; see the module docstring for who calls what."""

    by_epoch: bool = False
    """Whether groups follow from epoch and record alone: such a policy need not observe training."""
    kept_bytes: Mapping[int, int] | None = None
    """By record, the bytes for a cache to store, and none of other records; None: it stores what is read."""

    @property
    def candidates(self) -> tuple[int, ...]:
        """Every scan group that `group` may return, ascending."""

    def group(self, epoch: int, record: int) -> int | None:
        """Return the scan group (from 1) for `record` in `epoch`, both from 0; None: not decided yet.

        Called in reading order, by one thread at a time. All ranks must return the same.
        """

    def observe(self, update: Update) -> None:
        """Record an update."""

    def wanted_probe(self, epoch: int) -> Probe | None:
        """Return the probe to run before `epoch` is read, if any; the epoch is undecided until `decide`."""

    def decide(self, scores: Mapping[int, float]) -> None:
        """Choose a group, given each candidate's score in the wanted probe."""

    def take_decision(self) -> Decision | None:
        """Return the latest decision since the last call, if any."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state with which a resumed run decides as this one would have."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""


@dataclass(frozen=True, slots=True)
class PolicyInputs:
    """Properties of a run that its policy may use."""

    seed: int
    """The run's seed, which determines a policy's draws."""
    consensus: Consensus
    """Consensus among the run's ranks."""
    index: RecordIndex
    """The index of the training records."""
    counts: Callable[[], Counts] = Counts
    """Returns the counts of storage so far."""


def open_policy(config: ScanConfig, run: PolicyInputs) -> ScanPolicy:
    """Open the policy registered for these settings.

    Raises:
        ConfigError: no policy has such settings.
        RecordError: the records lack a candidate.
    """
    policy: ScanPolicy = build("scan", config, run)
    return policy


def require_tuning(config: ScanConfig, num_tune: int) -> None:
    """Raise ConfigError if the policy judges by tuning images and there are none."""
    wanted = "train, because no image is held out for tuning (dataset.tune_fraction)"
    require(num_tune > 0 or not config.uses_tune_split, "scan.judge", "tune", wanted)


class EpochPolicy:
    """Base of policies that depend on epoch and record alone: nothing is observed, probed or saved."""

    by_epoch = True
    kept_bytes: Mapping[int, int] | None = None

    def observe(self, update: Update) -> None:
        """Ignore the update."""

    def wanted_probe(self, epoch: int) -> Probe | None:  # noqa: ARG002
        """Return None: no probe is needed."""
        return None

    def decide(self, scores: Mapping[int, float]) -> None:
        """Do nothing: there was no probe."""

    def take_decision(self) -> Decision | None:
        """Return None: there is nothing to decide."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: there is no state."""


class StaticScan(EpochPolicy):
    """One scan group for the whole run."""

    def __init__(self, group: int) -> None:
        self.candidates: tuple[int, ...] = (group,)

    def group(self, epoch: int, record: int) -> int | None:  # noqa: ARG002
        """Return the one group."""
        return self.candidates[0]


@register("scan", "static", ScanConfig)
def open_static(config: ScanConfig, run: PolicyInputs) -> StaticScan:  # noqa: ARG001
    """Open the policy, which needs nothing of the run."""
    return StaticScan(config.group)


class OneGroup(StaticScan):
    """Base of most policies: one scan group at a time. Subclasses decide when it changes, and to what."""

    by_epoch = False

    def __init__(self, group: int, candidates: Iterable[int], *, undecided_from: int | None = None) -> None:
        """Begin with `group`; epochs from `undecided_from` on wait for a decision (None: no epoch does)."""
        super().__init__(group)
        self.candidates = tuple(sorted({group, *candidates}))
        self.current = group
        self.undecided_from = undecided_from
        self._news: Decision | None = Decision(group, "given")

    def group(self, epoch: int, record: int) -> int | None:  # noqa: ARG002
        """Return the current group, or None if the epoch is undecided."""
        undecided = self.undecided_from is not None and epoch >= self.undecided_from
        return None if undecided else self.current

    def choose(self, decision: Decision, *, undecided_from: int | None = None) -> None:
        """Read at the decided group from now on; epochs from `undecided_from` on wait for a decision."""
        self.current, self._news = decision.group, decision
        self.undecided_from = undecided_from

    def take_decision(self) -> Decision | None:
        """Return the latest decision, once; at first the initial group, unless replaced before the call."""
        news, self._news = self._news, None
        return news

    def state_dict(self) -> dict[str, Any]:
        """Return the group, the epoch from which on it is undecided, and a decision not yet reported."""
        news = None if self._news is None else _as_plain(self._news)
        return {"group": self.current, "undecided_from": self.undecided_from, "news": news}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the saved group, and its decision unless that has been reported already."""
        self.current, self.undecided_from = state["group"], state["undecided_from"]
        news = state.get("news")  # 0.2.0 did not save it
        self._news = None if news is None else _from_plain(news)


def _as_plain(decision: Decision) -> dict[str, Any]:
    scores = {group: float(score) for group, score in decision.scores.items()}
    columns = dict(decision.columns)
    return {"group": decision.group, "measure": decision.measure, "scores": scores, "columns": columns}


def _from_plain(state: Mapping[str, Any]) -> Decision:
    scores = {int(group): score for group, score in state["scores"].items()}  # JSON keys are strings
    return Decision(state["group"], state["measure"], scores, state["columns"])
