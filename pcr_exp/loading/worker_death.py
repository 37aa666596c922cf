"""What torch says when a decoding process dies, in our own words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pcr_exp.errors import LoaderError


@contextmanager
def named_worker_death() -> Iterator[None]:
    """Within, a LoaderError takes the place of torch's RuntimeError about a worker that died.

    torch raises it where the main thread happens to be when the signal of the death comes, be it in the
    middle of an update: so this belongs around a whole run, not only around the loader.
    """
    try:
        yield
    except RuntimeError as error:
        # torch has no class of its own for it; other errors keep theirs.
        if not str(error).startswith("DataLoader worker (pid"):
            raise
        raise LoaderError(
            f"a decoding process died: {error} The system may have killed it for want of memory: "
            "lower loader.num_workers, loader.prefetch_batches or training.batch_size."
        ) from error
