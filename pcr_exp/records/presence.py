"""Whether the files lie there that an index speaks of: before anything is laid out for what it claims.

A few kilobytes of an index may claim a thousand million images. What they would take is read off it only
after files of that size were found.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from pcr_exp.errors import MissingFileError, RecordError
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.protocol import Storage, opening

_MAX_LOCAL, _MAX_REMOTE = 2**14, 64
"""Records that are looked at; of more, as many at random: a tenth of a second, and a few requests."""
_NUM_THREADS = 16


def require_files(records: RecordSet, storage: Storage | None = None) -> None:
    """Compare the sizes of record files with the index, up to the end of their first scan group.

    Prefixes that were copied alone are welcome; an index has checked that its groups have room for the
    samples that it claims.

    Args:
        records: Of a split.
        storage: Where they lie; by default where the records are read from, throttle and all.

    Raises:
        RecordError: a file is missing, or shorter than the index says.
        StorageError: the storage cannot tell.
    """
    storage = storage or records.storage
    count, limit = len(records.index.records), _MAX_REMOTE if storage.is_remote else _MAX_LOCAL
    # An index cannot know which of its records will be looked at.
    numbers = range(count) if count <= limit else random.SystemRandom().sample(range(count), limit)

    def check(number: int) -> None:
        path, wanted = records.path(number), records.stored(number).group_ends[0]
        try:
            with opening():
                num_bytes = storage.size(path)
        except MissingFileError as error:
            raise RecordError(
                f"{storage}/{path} does not exist, and the index beside it lists it. Copy the records again "
                "from where they were made: all of them, and the index last."
            ) from error
        if num_bytes < wanted:
            raise RecordError(
                f"{storage}/{path} has {num_bytes} bytes, its index says {wanted} up to the end of scan "
                "group 1 alone. Copy the record again from where it was made, or encode again."
            )

    if storage.is_remote:
        with ThreadPoolExecutor(_NUM_THREADS, "pcr-exp-sizes") as threads:
            list(threads.map(check, numbers))
    else:
        for number in numbers:
            check(number)
