"""How records become batches."""

from __future__ import annotations

from dataclasses import dataclass

from pcr_exp.config.check import require

DECODE_MODES = ("libjpeg", "unsmoothed", "scaled")
ANTIALIAS = True
"""Whether crops that shrink are filtered, unless told otherwise (measured: results/antialias)."""


@dataclass(kw_only=True, slots=True)
class LoaderConfig:
    """How records become batches."""

    num_workers: int = 1
    """Decoding processes; 0 decodes in the training process."""
    lanes: int = 8
    """Records that are read side by side, of all processes together. Orders and batches depend on it, and not
    on how many processes share the lanes; these divide it."""
    shuffle_records: int = 1
    """Records of a lane whose samples are shuffled together."""
    records_ahead: int | None = None
    """Records read ahead of decoding; null sizes it from bandwidth x latency (Little's law)."""
    prefetch_batches: int = 2
    """Decoded batches waiting per worker."""
    decode: str = "unsmoothed"
    """`libjpeg`: its smoothed output. `unsmoothed`: faster below scan group 10. `scaled`: besides, groups 1
    and 2 at 1/8 and 1/2 of the size, enlarged again by the crop."""
    antialias: bool = ANTIALIAS
    """Filter where a crop shrinks, as Pillow, torchvision and DALI do; what shrinks is what was decoded, so
    with `scaled` there is less to filter. Runs from before there was a choice did not."""
    timeout_s: float | None = 300.0
    """An error, if nothing has been read or decoded for this long while training waits (null: no limit)."""

    def __post_init__(self) -> None:
        require(self.num_workers >= 0, "loader.num_workers", self.num_workers, "0 or more")
        require(
            self.timeout_s is None or self.timeout_s > 0,
            "loader.timeout_s",
            self.timeout_s,
            "seconds above 0, or null to wait forever",
        )
        require(self.lanes >= 1, "loader.lanes", self.lanes, "at least 1")
        require(self.shuffle_records >= 1, "loader.shuffle_records", self.shuffle_records, "at least 1")
        ahead = self.records_ahead
        require(ahead is None or ahead >= 1, "loader.records_ahead", ahead, "null or at least 1")
        require(self.prefetch_batches >= 1, "loader.prefetch_batches", self.prefetch_batches, "at least 1")
        require(self.decode in DECODE_MODES, "loader.decode", self.decode, " or ".join(DECODE_MODES))
