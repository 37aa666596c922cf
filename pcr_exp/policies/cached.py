"""`cached`: some records are trained on at a lower scan group that a cache holds, in place of a read.

The cache is planned: the first records of a permutation, as many as fit into `scan.cache_mib` at the lower
group. From the second epoch on each of them is drawn, epoch by epoch, to come at that group, with no request,
or at the full one, of which the cache spares the beginning. What happens to lie in the cache decides nothing:
where it was lost, the same images are read at the same groups from storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pcr_exp.config.check import Bound, above, require
from pcr_exp.config.components import register
from pcr_exp.config.scan import PolicyConfig
from pcr_exp.policies.policy import OneGroup, PolicyInputs
from pcr_exp.system import MIB

if TYPE_CHECKING:
    from pcr_exp.records.index import RecordIndex


@dataclass(kw_only=True, slots=True)
class CachedConfig(PolicyConfig):
    """`group`, and in place of it `cached_group` for some of the records that a cache holds."""

    cached_group: int = 2
    """The scan group up to which the cache holds records."""
    cache_mib: Annotated[float, above(0, "more than 0")] = 1024.0
    """The cache that is planned with. It is part of what a run is; `storage.cache_mib` must be as much."""
    share: Annotated[float, Bound(lambda share: 0 <= share <= 1, "a share, 0 to 1")] = 0.5
    """Share of the cached records that come at `cached_group` in each epoch but the first."""

    def __post_init__(self) -> None:
        PolicyConfig.__post_init__(self)
        lower = 1 <= self.cached_group < self.group
        require(lower, "scan.cached_group", self.cached_group, f"a scan group below scan.group={self.group}")

    def at_smoke_size(self) -> tuple[dict[str, Any], int]:
        """As every policy's: the first epoch reads everything, the second draws."""
        return {}, 2


def planned_cache(index: RecordIndex, group: int, max_bytes: float, seed: int) -> dict[int, int]:
    """The records that a cache of `max_bytes` is to hold up to `group`, and the bytes of each.

    The first of a permutation that follows from the seed, up to the first that does not fit.
    """
    import numpy as np

    from pcr_exp.system.randomness import Purpose, stream

    line = stream(seed, Purpose.CACHED).permutation(len(index.records))
    num_bytes = index.prefixes_bytes(group)[line]
    num_kept = int(np.searchsorted(np.cumsum(num_bytes), max_bytes, side="right"))
    return dict(zip(line[:num_kept].tolist(), num_bytes[:num_kept].tolist(), strict=True))


class CachedScan(OneGroup):
    """A function of (seed, epoch, record): the same for every worker and rank, and after a resume."""

    by_epoch = True

    def __init__(self, config: CachedConfig, index: RecordIndex, seed: int) -> None:
        super().__init__(config.group, [config.cached_group, config.group])
        self._planned = planned_cache(index, config.cached_group, config.cache_mib * MIB, seed)
        self.kept_bytes = self._planned
        self._cached_group = config.cached_group
        self._share = config.share
        self._seed = seed

    def group(self, epoch: int, record: int) -> int | None:
        """The lower group, if the record was drawn for it."""
        from pcr_exp.system.randomness import Purpose, stream

        if epoch == 0 or record not in self._planned:
            return self.current
        draw = stream(self._seed, Purpose.CACHED, epoch, record).random()
        return self._cached_group if draw < self._share else self.current


@register("scan", "cached", CachedConfig)
def open_cached(config: CachedConfig, run: PolicyInputs) -> CachedScan:
    """The plan follows from the run's seed and the records' sizes."""
    return CachedScan(config, run.index, run.seed)
