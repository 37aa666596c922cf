"""Which bytes of each record are read: one scan group, or a policy's choice; see `pcr_exp.policies`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from omegaconf import MISSING

from pcr_exp.config.check import any_each, check_fields, one_of, require
from pcr_exp.config.scan_scripts import NUM_GROUPS, groups_of_script
from pcr_exp.errors import ConfigError

FULL = "full"
"""Option for all groups, however many there are."""
PAPER_GROUPS = (1, 2, 5, 10)
"""The scan groups that the paper compares."""
GROUPS = any_each(
    lambda group: 1 <= group <= NUM_GROUPS,
    f"scan groups that the records have, 1..{NUM_GROUPS}, at least one",
)


@dataclass(kw_only=True, slots=True)
class ScanConfig:
    """The bytes to read of each record: one scan group, unless the settings of a policy specify more."""

    name: str = MISSING
    """Name of the level or policy in runs and figures."""
    encoding: Annotated[str, one_of("pcr", "baseline")] = "pcr"
    """`pcr`, or `baseline`: the original JPEG bytes in the same container."""
    group: int = NUM_GROUPS
    """Scan group; for a policy, the first one."""

    def __post_init__(self) -> None:
        check_fields(self, "scan")
        highest = NUM_GROUPS if self.encoding == "pcr" else 1
        require(1 <= self.group <= highest, "scan.group", self.group, f"a scan group, 1..{highest}")

    def fit(self, num_groups: int) -> None:
        """Adapt to records with `num_groups` groups; see `groups_of_script`.

        Raises:
            ConfigError: the records lack a group.
        """
        if self.encoding == "pcr":
            (group,) = groups_of_script("scan.group", [self.group], num_groups)
            if self.name in (FULL, f"group_{self.group}"):
                self.name = f"group_{group}"  # a level is named by what is read, so one run has one name
            self.group = group

    def at_smoke_size(self) -> tuple[dict[str, Any], int]:
        """Return settings and epochs, for `runner=smoke`, with which the policy decides at least once."""
        return {}, 1

    def num_probed(self, num_train: int, num_fresh: int, batch_size: int) -> int:  # noqa: ARG002
        """Return the images that a probe passes through the model in training mode, in batches; 0: none.

        Args:
            num_train: Images of the training split.
            num_fresh: Fresh images of an epoch, per micro-batch of a global batch.
            batch_size: Images per micro-batch.
        """
        return 0

    @property
    def uses_group(self) -> bool:
        """Whether `group` has an effect."""
        return True

    @property
    def uses_tune_split(self) -> bool:
        """Whether the policy uses the images held out for tuning."""
        return False


def scan_of(name: str) -> ScanConfig:
    """Return the scan level of this name: `baseline`, or `group_1` to `group_10`.

    Raises:
        ConfigError: it is neither.
    """
    if name == "baseline":
        return ScanConfig(name=name, encoding="baseline", group=1)
    if is_level(name):
        return ScanConfig(name=name, group=int(name.rpartition("_")[2]))
    raise ConfigError(f"{name!r} is not a scan level: wanted baseline, or group_1 to group_{NUM_GROUPS}.")


def is_level(name: str) -> bool:
    """Return whether `scan_of` accepts a name."""
    stem, _, number = name.rpartition("_")
    is_group = stem == "group" and number.isdecimal() and 1 <= int(number) <= NUM_GROUPS
    return name == "baseline" or is_group


@dataclass(kw_only=True, slots=True)
class PolicyConfig(ScanConfig):
    """Settings of all policies, which choose among scan groups of progressive records."""

    def __post_init__(self) -> None:
        ScanConfig.__post_init__(self)
        wanted = "pcr: baseline records have only one scan group, so a policy has nothing to choose"
        require(self.encoding == "pcr", "scan.encoding", self.encoding, wanted)
        if not self.uses_group:
            self.group = NUM_GROUPS  # so that `pcr_exp.open` sees that another one had no effect


@dataclass(kw_only=True, slots=True)
class CandidatesConfig(PolicyConfig):
    """A policy that chooses among a list of scan groups."""

    candidates: Annotated[list[int], GROUPS] = field(default_factory=lambda: list(PAPER_GROUPS))
    """Scan groups that the policy chooses among, in ascending order."""

    def __post_init__(self) -> None:
        PolicyConfig.__post_init__(self)
        self._check_rising()

    def fit(self, num_groups: int) -> None:
        """Adapt the group, as for every level, and the candidates."""
        PolicyConfig.fit(self, num_groups)
        self.candidates = groups_of_script("scan.candidates", self.candidates, num_groups)
        self._check_rising()

    def _check_rising(self) -> None:
        rising = self.candidates == sorted(set(self.candidates))
        require(rising, "scan.candidates", self.candidates, "every scan group once, from low to high")


def require_start(config: CandidatesConfig) -> None:
    """Refuse a first group that is not among the candidates."""
    require(config.group in config.candidates, "scan.group", config.group, f"one of {config.candidates}")
