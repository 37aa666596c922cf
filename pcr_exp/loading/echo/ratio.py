"""How long the stages in front of the echo and behind it take: the ratio R that says which echo is free."""

from __future__ import annotations

from collections.abc import Mapping

from pcr_exp.config.echo import EchoConfig
from pcr_exp.loading.stream import Effort


def stage_columns(
    echo: EchoConfig, effort: Effort, *, num_workers: int, bytes_read: int, counters: Mapping[str, float]
) -> dict[str, float | None]:
    """The columns of a row that say how long a stage takes per image, had it never to wait for the other.

    In front of the echo: reading, and with echo=example_after and batch also decoding. Behind it: training,
    and with echo=example_before and none also decoding, in parallel if there are workers. Of stages that
    overlap, the slower one counts. Reading is timed while reads are in flight, so that its pauses, when
    enough has been read ahead, are not in it; where latency is the limit and not bandwidth, it is slower the
    less it reads ahead.

    Args:
        num_workers: Decoding processes.
        bytes_read: What storage delivered in `effort.read_s`.
        counters: A row's `samples_seen`, `samples_trained`, `record_bytes`, `train_s`.

    Returns:
        `upstream_s_per_sample`: seconds per fresh image in front. `downstream_s_per_sample`: seconds per
        image trained on, behind. `upstream_ratio`: R = the first over the second (Choi et al. 2019). None
        where nothing was measured yet.
    """
    bytes_per_fresh = _over(counters["record_bytes"], counters["samples_seen"])
    read_s = _times(_over(effort.read_s, bytes_read), bytes_per_fresh)
    decode_s = _over(effort.decode_s, effort.num_decoded * max(1, num_workers))
    train_s = _over(counters["train_s"], counters["samples_trained"])
    upstream_s, downstream_s = read_s, train_s
    if echo.name in ("example_after", "batch"):
        upstream_s = _slower(read_s, decode_s)
    elif num_workers == 0:
        downstream_s = None if train_s is None or decode_s is None else train_s + decode_s
    else:
        downstream_s = _slower(train_s, decode_s)
    return {
        "upstream_s_per_sample": upstream_s,
        "downstream_s_per_sample": downstream_s,
        "upstream_ratio": _over(upstream_s, downstream_s),
    }


def _over(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _times(a: float | None, b: float | None) -> float | None:
    return a * b if a is not None and b is not None else None


def _slower(a: float | None, b: float | None) -> float | None:
    return max(a, b) if a is not None and b is not None else None
