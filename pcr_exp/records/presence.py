"""Check that the record files of an index exist before memory is allocated for its claims.

An index of a few kilobytes may claim a billion images. Memory for them is allocated only after files large
enough to hold them were found.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from pcr_exp.errors import MissingFileError, RecordError
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.protocol import Storage, opening

_MAX_LOCAL, _MAX_REMOTE = 2**14, 64
"""Maximum records to check, a random sample if there are more: 0.1 s locally, a few requests remotely."""
_NUM_THREADS = 16


def require_files(records: RecordSet, storage: Storage | None = None) -> None:
    """Check that record files exist and reach the end of their first scan group, as the index states it.

    Files that hold only a prefix are accepted. Parsing the index has already checked that its groups have
    room for the samples it claims.

    Args:
        records: Records of one split.
        storage: Storage to check; by default that of the records, including its throttle.

    Raises:
        RecordError: a file is missing, or its first scan group is cut short.
        StorageError: the storage cannot report a file size.
    """
    storage = storage or records.storage
    count, limit = len(records.index.records), _MAX_REMOTE if storage.is_remote else _MAX_LOCAL
    # A forged index cannot predict which of its records are checked.
    numbers = range(count) if count <= limit else random.SystemRandom().sample(range(count), limit)

    def check(number: int) -> None:
        path, wanted = records.path(number), records.stored(number).group_ends[0]
        try:
            with opening():
                num_bytes = storage.size(path)
        except MissingFileError as error:
            raise RecordError(
                f"{storage}/{path} does not exist, but the index next to it lists it. Copy all records again "
                "from where they were made, and the index last."
            ) from error
        if num_bytes < wanted:
            raise RecordError(
                f"{storage}/{path} has {num_bytes} bytes, but its index says {wanted} up to the end of "
                "scan group 1 alone. Copy the record again from where it was made, or encode again."
            )

    if storage.is_remote:
        with ThreadPoolExecutor(_NUM_THREADS, "pcr-exp-sizes") as threads:
            list(threads.map(check, numbers))
    else:
        for number in numbers:
            check(number)
