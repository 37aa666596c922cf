"""The records of several splits as one consecutively numbered set, and the policy that reads them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from pcr_exp.config.check import require
from pcr_exp.config.mixture import LABEL
from pcr_exp.errors import RecordError
from pcr_exp.policies.policy import EpochPolicy, ScanPolicy
from pcr_exp.records.groups import RecordPrefix
from pcr_exp.records.index import RecordEntry, RecordIndex
from pcr_exp.records.reader import RecordSet


@dataclass(frozen=True, slots=True)
class LabelledRecords:
    """The records of a source, and the name of the label to use."""

    records: RecordSet
    label: str

    @property
    def classes(self) -> Sequence[str]:
        return self.records.index.classes[self.label]


class Numbering:
    """Consecutive numbers for the items of several sources."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.starts = list(accumulate(counts, initial=0))[:-1]

    def place(self, number: int) -> tuple[int, int]:
        """Return (source, number within the source)."""
        source = int(np.searchsorted(self.starts, number, side="right")) - 1
        return source, number - self.starts[source]


def require_one_codec(sources: Mapping[str, RecordSet]) -> None:
    """Raise ConfigError unless one decoder serves all sources."""
    codecs = {name: records.codec.name for name, records in sources.items()}
    one_way = (
        "records of one image codec: prepare all with the same records.codec, and open either all or none as "
        "baseline"
    )
    require(len(set(codecs.values())) == 1, "sources", codecs, one_way)


class MixedRecords(RecordSet):
    """The records of all sources. Counts the bytes read from each."""

    def __init__(self, sources: Mapping[str, LabelledRecords], *, merges: bool = False) -> None:
        """`sources` share a codec and `max_pixels`; in a run, they also share one storage.

        With `merges`, classes with the same name become one class. Otherwise, a class identifies its source.
        """
        self._names = list(sources)
        self._sources = list(sources.values())
        self.numbering = Numbering([len(source.records.index.records) for source in self._sources])
        """Numbers the records of all sources."""
        self.classes = Numbering([len(source.classes) for source in self._sources])
        """Numbers the classes of all sources before merging, so that a number identifies the source."""
        self.sources = dict(sources)
        names = [name for source in self._sources for name in source.classes]
        self._classes = list(dict.fromkeys(names)) if merges else names
        number = {name: i for i, name in enumerate(self._classes)}
        self._class_of = np.array([number[name] for name in names]) if merges else np.arange(len(names))
        self._lock = threading.Lock()
        self._read_bytes: Counter[str] = Counter()
        first = self._sources[0].records
        self.codec, self.max_pixels, self.storage = first.codec, first.max_pixels, first.storage
        self.index = self._joined_index()

    @property
    def read_bytes(self) -> dict[str, int]:
        """Bytes read so far by source, including read-ahead."""
        with self._lock:
            return {name: self._read_bytes[name] for name in self._names}

    @property
    def reads_many(self) -> bool:
        return all(source.records.reads_many for source in self._sources)

    def source_of(self, record: int) -> str:
        return self._names[self.numbering.place(record)[0]]

    def merged(self, name: str, labels: Any) -> npt.NDArray[np.int64]:
        """Map class indices [N] of a source to class indices [N] of the mixture."""
        found: npt.NDArray[np.int64] = self._class_of[
            np.asarray(labels, dtype=np.int64) + self.classes.starts[self._names.index(name)]
        ]
        return found

    def path(self, record: int) -> str:
        i, own = self.numbering.place(record)
        return f"{self._sources[i].records.path(own)} of {self._names[i]}"

    def describe(self, record: int, group: int, after: int = 0) -> str:
        i, own = self.numbering.place(record)
        return f"{self._sources[i].records.describe(own, group, after)}, source {self._names[i]}"

    def read_prefix(self, record: int, group: int) -> RecordPrefix:
        i, own = self.numbering.place(record)
        with self._named(i):
            return self._joined(i, self._sources[i].records.read_prefix(own, group))

    def read_damaged_prefix(self, record: int, group: int) -> tuple[RecordPrefix, set[int]]:
        i, own = self.numbering.place(record)
        with self._named(i):
            prefix, damaged = self._sources[i].records.read_damaged_prefix(own, group)
        return self._joined(i, prefix), damaged

    def read_prefixes(self, wanted: Sequence[tuple[int, int]]) -> list[RecordPrefix]:
        places = [(self.numbering.place(record), group) for record, group in wanted]
        of_sources: dict[int, list[tuple[int, int]]] = {}
        for (i, own), group in places:
            of_sources.setdefault(i, []).append((own, group))
        found = {}
        for i, few in of_sources.items():
            with self._named(i):
                found[i] = iter(self._sources[i].records.read_prefixes(few))
        return [self._joined(i, next(found[i])) for (i, _), _ in places]

    @contextmanager
    def _named(self, i: int) -> Iterator[None]:
        """Name the source in errors, because records of different sources may have the same name."""
        try:
            yield
        except RecordError as error:
            raise RecordError(f"source {self._names[i]!r}: {error}") from error

    def _joined(self, i: int, prefix: RecordPrefix) -> RecordPrefix:
        """Count the bytes of a source's prefix, and map its labels to those of the mixture."""
        with self._lock:
            self._read_bytes[self._names[i]] += prefix.num_bytes
        labels = self.merged(self._names[i], prefix.labels[self._sources[i].label])
        return replace(prefix, labels={LABEL: labels})

    def _joined_index(self) -> RecordIndex:
        indexes = [source.records.index for source in self._sources]
        num_groups = max(index.num_groups for index in indexes)
        entries: list[RecordEntry] = []
        for name, index in zip(self._names, indexes, strict=True):
            more = num_groups - index.num_groups
            for entry in index.records:
                ends = (*entry.group_ends, *[entry.group_ends[-1]] * more)
                entries.append(replace(entry, file=f"{entry.file} of {name}", group_ends=ends))
        return RecordIndex(
            dataset="mixture",
            split=" and ".join(self._names),
            encoding=indexes[0].encoding,
            fingerprint=xxhash.xxh3_64_hexdigest("\n".join(index.fingerprint for index in indexes).encode()),
            num_groups=num_groups,
            classes={LABEL: self._classes},
            records=entries,
        )


class MixedPolicy(EpochPolicy):
    """Reads each source's records as its own policy decides. None of the policies follows training."""

    def __init__(self, policies: Mapping[str, ScanPolicy], records: Numbering) -> None:
        self._policies = policies
        self._own = list(policies.values())
        self._records = records
        self.candidates: tuple[int, ...] = tuple(
            sorted({group for policy in self._own for group in policy.candidates})
        )

    def group(self, epoch: int, record: int) -> int | None:
        """Return the group chosen by the policy of the record's source."""
        i, own = self._records.place(record)
        return self._own[i].group(epoch, own)

    def state_dict(self) -> dict[str, Any]:
        """Return the policies' states by source."""
        return {name: policy.state_dict() for name, policy in self._policies.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore each policy's state."""
        for name, policy in self._policies.items():
            policy.load_state_dict(state[name])
