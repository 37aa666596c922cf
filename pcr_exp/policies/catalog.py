"""From a scan configuration to the policy that it describes."""

from __future__ import annotations

from collections.abc import Callable

from pcr_exp.config.check import require
from pcr_exp.config.records import NUM_GROUPS
from pcr_exp.config.scan import (
    BalancedConfig,
    CosineConfig,
    MixtureConfig,
    MssimConfig,
    PlateauConfig,
    ScanConfig,
    ScheduleConfig,
)
from pcr_exp.policies.balanced import BalancedScan
from pcr_exp.policies.consensus import Consensus
from pcr_exp.policies.cosine import CosineScan
from pcr_exp.policies.mixture import MixtureScan
from pcr_exp.policies.mssim import MssimScan
from pcr_exp.policies.plateau import PlateauScan
from pcr_exp.policies.policy import ScanPolicy, StaticScan
from pcr_exp.policies.probe import TrialProbe
from pcr_exp.policies.schedule import ScheduleScan
from pcr_exp.records.index import RecordIndex


def judges_by_tune(config: ScanConfig) -> bool:
    """Whether the policy looks at the images that were held out to tune by."""
    if isinstance(config, BalancedConfig):
        return judges_by_tune(config.floor)
    return isinstance(config, PlateauConfig) and config.judge == "tune"


def require_tuning(config: ScanConfig, num_tune: int) -> None:
    """Raise ConfigError if the policy judges by images to tune by and there are none."""
    wanted = "train, as no image is held out to tune by (dataset.tune_fraction)"
    require(num_tune > 0 or not judges_by_tune(config), "scan.judge", "tune", wanted)


def open_policy(
    config: ScanConfig,
    *,
    seed: int,
    consensus: Consensus,
    index: RecordIndex,
    supplied: Callable[[], tuple[int, float]],
) -> ScanPolicy:
    """The policy of a configuration.

    Args:
        seed: Of the run; a mixture's draws follow from it.
        consensus: Among the run's ranks.
        index: Of the records that are trained on.
        supplied: Bytes that storage delivered, and the seconds that it had reads to do.

    Raises:
        RecordError: the records lack a candidate.
    """
    if isinstance(config, BalancedConfig):
        floor = open_policy(config.floor, seed=seed, consensus=consensus, index=index, supplied=supplied)
        groups = sorted({*config.candidates, *floor.candidates})
        return BalancedScan(
            config.group,
            floor,
            {group: index.mean_prefix_bytes(group) for group in groups},
            supplied,
            consensus,
            every_steps=config.every_steps,
            headroom=config.headroom,
            max_slowdown=config.max_slowdown,
        )
    if isinstance(config, ScheduleConfig):
        return ScheduleScan(config.groups, config.milestones)
    if isinstance(config, MixtureConfig):
        return MixtureScan(config.group, config.candidates, config.weights, seed)
    if isinstance(config, MssimConfig):
        return MssimScan(
            config.candidates, NUM_GROUPS, threshold=config.threshold, num_images=config.num_images
        )
    if isinstance(config, CosineConfig):
        return CosineScan(
            config.group,
            config.candidates,
            NUM_GROUPS,
            threshold=config.threshold,
            first_epoch=config.first_epoch,
            every_epochs=config.every_epochs,
            num_images=config.num_images,
        )
    if isinstance(config, PlateauConfig):
        return PlateauScan(
            config.group,
            TrialProbe(tuple(config.candidates), config.trial_steps, config.judge),
            consensus,
            patience_epochs=config.patience_epochs,
            min_drop=config.min_drop,
            tolerance=config.tolerance,
        )
    return StaticScan(config.group)
