"""Records in, batches out.

A plan (`plan`) defines the reads and the contents of each batch, and a stream (`stream`) carries it out. By
default, nothing stands between them and training (`stage`); data echoing (`echo/`) adds a stage there.

Which samples form a batch, and how each is augmented, is a function of (seed, epoch, index of the micro-batch
in the global batch). It does not depend on workers, threads, storage speed or the number of processes.

Memory: reading runs ahead of decoding, but record prefixes held or in flight are bounded even if nobody takes
a batch. They are those that this process's lanes use, `records_ahead` more, and those that a stage keeps in
use. Each lane uses `shuffle_records`; in addition, lanes hold a shared record while one has used its part and
another has not. `RecordLoader.max_held_bytes` returns this bound. Memory also holds the pixels and files of
num_workers x prefetch_batches + 3 batches in progress, and the pixels in a shuffle buffer after decoding.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from functools import lru_cache, partial

import cv2

from pcr_exp.config.loader import LoaderConfig, StorageConfig, check_lanes
from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.errors import ConfigError, LoaderError
from pcr_exp.images.codec import Decoder
from pcr_exp.loading import read_ahead
from pcr_exp.loading.batch import Batch as Batch
from pcr_exp.loading.fields import WithFields, refuse_own_crops
from pcr_exp.loading.lanes import EpochLanes, SampleIndices, chunks_in_stored_order, laid_end_to_end, num_held
from pcr_exp.loading.mixture import Mixture
from pcr_exp.loading.order import EpochRange, Order, SampleSequence, SlotSamples, StreamedOrder, open_share
from pcr_exp.loading.plan import Plan
from pcr_exp.loading.read_ahead import Reading
from pcr_exp.loading.selection import Selection
from pcr_exp.loading.stage import Stage, StageInputs, open_stage
from pcr_exp.loading.stream import BatchStream, LoaderStats
from pcr_exp.loading.transform import Transform
from pcr_exp.loading.whole_images import WholeImageDecoder, WholeImageTransform
from pcr_exp.loading.workers import BatchDecoder, ImagesDecoder
from pcr_exp.policies.policy import ScanPolicy
from pcr_exp.records.fields import RecordFields
from pcr_exp.records.reader import RecordSet


def _selected(selection: Selection, slot: SlotSamples) -> Iterator[SampleIndices]:
    return map(selection.locate, slot())


def _open_decoder(
    transform: Transform | WholeImageTransform, decode: Decoder, seed: int, kinds: Mapping[str, str]
) -> ImagesDecoder:
    if isinstance(transform, WholeImageTransform):
        return WholeImageDecoder(transform, decode=decode, seed=seed, kinds=kinds)
    refuse_own_crops(kinds)
    decoder = BatchDecoder(transform, decode=decode, seed=seed)
    return WithFields(decoder, kinds) if kinds else decoder


class RecordLoader:
    """Batches of a split for one process. Runs one stream at a time, and closes it as a context manager."""

    def __init__(
        self,
        records: RecordSet,
        policy: ScanPolicy,
        config: LoaderConfig,
        *,
        transform: Transform | WholeImageTransform,
        label: str,
        batch_size: int,
        seed: int,
        shuffle: bool,
        storage_config: StorageConfig | None = None,
        echo: EchoConfig | None = None,
        fields: RecordFields | None = None,
        rank: int = 0,
        world_size: int = 1,
        global_batch_size: int | None = None,
        selection: Selection | Mixture | None = None,
    ) -> None:
        """`storage_config` determines how many reads in flight hide the storage's latency.

        `global_batch_size` is the number of images per update over all processes (None: one batch each).
        With a `selection`, only its images are used, and records without any of them are not read. It may be
        a mixture of sources with consecutively numbered records; a mixture always shuffles.

        `fields` are read with every record and returned with the batches; otherwise no field is read.

        Raises:
            RecordError: the records lack a scan group among the policy's candidates.
            ConfigError: the records lack the label, there is no such rank, lanes and global batch cannot be
                divided equally, the echo does not fit them, or fields do not fit the transform or an echo.
        """
        index = records.index
        for group in policy.candidates:
            index.check_group(group)
        if label not in index.classes:
            raise ConfigError(
                f"dataset.label={label!r}: wanted one of {', '.join(sorted(index.classes))}, the labels that "
                f"the records of {index.dataset}/{index.split} have."
            )
        self._share = open_share(rank, world_size, batch_size=batch_size, global_batch_size=global_batch_size)
        if shuffle:
            check_lanes(config.lanes, self._share.num_slots, world_size)
        self._selection = selection
        self._sizes: list[int] = index.sizes.tolist() if selection is None else selection.sizes
        """Samples used per record; records without a selected image are left out."""
        selects = selection.has_selections if isinstance(selection, Mixture) else selection is not None
        if selects and config.on_corrupt == "replace":
            raise ConfigError(
                "loader.on_corrupt='replace': wanted 'fail' with a selection. A damaged image is replaced by "
                "another of its record, which may not be selected."
            )
        num_used = len(selection) if isinstance(selection, Mixture) else sum(self._sizes)
        num_samples = self._share.samples_per_slot(num_used)
        self.num_samples = num_samples * len(self._share.slots)
        """Fresh samples per epoch and process."""
        self._stage = open_stage(
            echo,
            StageInputs(
                index=index,
                first_group=min(policy.candidates),
                num_samples=num_samples,
                batch_size=batch_size,
                seed=seed,
                slots=self._share.slots,
            ),
        )
        if self._stage.highest_group and config.on_corrupt == "replace":
            raise ConfigError(
                "loader.on_corrupt='replace': wanted 'fail' with echo.repeat_groups: its reads continue "
                "earlier ones, so a damaged image can no longer be replaced."
            )
        self.num_batches = self._stage.num_batches
        """Updates per epoch. This process contributes all of its micro-batches to each of them."""
        self._records = records
        self._policy = policy
        self._config = config
        self._label = label
        self._batch_size = batch_size
        self._seed = seed
        self._shuffle = shuffle
        self._storage_config = storage_config
        if fields is not None and echo is not None:
            raise ConfigError(
                "echo with fields: an echo repeats images without their fields. Leave out one of them."
            )
        self._fields = fields
        kinds = {} if fields is None else fields.kinds
        self._decoder = _open_decoder(transform, records.open_decoder(config.decode), seed, kinds)
        # Reading requests an epoch's order first, and batching a little later.
        self._order = lru_cache(maxsize=3)(self._epoch_order)
        self._stream: BatchStream | None = None
        self._batches: Iterator[Batch] | None = None
        """The result of `batches`: the stream, or a stage around it, which may hold its own images."""
        self._earlier_stats = LoaderStats()

    @property
    def stats(self) -> LoaderStats:
        """Statistics of all streams so far."""
        return self._earlier_stats + (self._stream.stats if self._stream is not None else LoaderStats())

    def batches(
        self, first_epoch: int, first_batch: int, num_epochs: int, end_batch: int | None = None
    ) -> Iterator[Batch]:
        """Start a continuous stream over the epochs [first_epoch, num_epochs), ending any earlier stream.

        Read-ahead crosses epochs. `first_batch` and `end_batch` count updates. With `first_batch` > 0, the
        first epoch begins at that update. The stream then yields exactly what an uninterrupted one would, for
        any number of processes, and reads only records that are still needed. With `end_batch`, every epoch
        ends before that update, and only records needed for the remaining batches are read.

        Raises:
            LoaderError: an epoch has no batch `first_batch`, or `end_batch` is given with an echo after
                decoding.
            ConfigError: the configured storage takes longer for one record than `loader.timeout_s`.
        """
        if not 0 <= first_batch <= self.num_batches:
            raise LoaderError(
                f"batch {first_batch} was requested first, but an epoch has {self.num_batches} batches. The "
                "run began with another batch size or dataset."
            )
        self.close()
        if self._config.num_workers == 0:
            cv2.setNumThreads(0)
        span = EpochRange(first_epoch, first_batch, num_epochs, end_batch)
        self._stream = self._open_stream(self._stage.decoded_span(span))
        self._batches = self._stage.batches(self._stream, span)
        return self._batches

    def max_held_bytes(self) -> int:
        """Return the maximum bytes that a stream's record prefixes take, including those in flight.

        The bound is (records held by lanes + one record per sample that a stage holds + records ahead) x
        (largest prefix + largest fields). The prefix is that of the largest scan group that the policy may
        choose or a repeat may use.
        """
        index = self._records.index
        largest = int(index.prefixes_bytes(self._largest_group).max())
        if self._fields is not None:
            largest += max(map(self._fields.num_bytes, range(len(index.records))))
        window = self._config.shuffle_records if self._shuffle else 1
        if isinstance(self._selection, Mixture):  # may hold a record once for each of several passes
            in_use = self._selection.num_held(self._share, self._config.lanes, window)
        else:
            held = num_held(self._sizes, self._num_lanes, window)
            in_use = min(held + self._stage.num_buffered_samples, len(index.records))
        return (in_use + self._reading().ahead) * largest

    def pause(self) -> None:
        """Start no new reads; return when the reads in flight have ended. Decoding continues."""
        if self._stream is not None:
            self._stream.pause()

    def resume(self) -> None:
        """Resume reading."""
        if self._stream is not None:
            self._stream.resume()

    def close(self) -> None:
        """End the stream with its threads and processes. `batches` may be called again."""
        batches, self._batches = self._batches, None
        if isinstance(batches, Generator):
            batches.close()
        if self._stream is not None:
            self._stream.close()
            self._earlier_stats = self.stats
            self._stream = None

    def __enter__(self) -> RecordLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_stream(self, span: EpochRange) -> BatchStream:
        self._check_timeout(self._largest_group)
        return BatchStream(
            Plan(span, self._share.slots, self._order, self._policy.group),
            self._records,
            self._decoder,
            self._reading(),
            self._config,
            label=self._label,
            batch_size=self._batch_size,
            open_reads=self._stage.reads,
            fields=self._fields,
            replacing=self._seed if self._config.on_corrupt == "replace" else None,
        )

    def _epoch_order(self, epoch: int) -> Order:
        if isinstance(self._selection, Mixture):
            return self._selection.order(
                epoch,
                self._share,
                batch_size=self._batch_size,
                seed=self._seed,
                num_lanes=self._config.lanes,
                window=self._config.shuffle_records,
            )
        slots = self._laid_out(epoch)
        if type(self._stage).order is Stage.order:
            return StreamedOrder(slots, len(self._records.index.records), self._batch_size)
        return self._stage.order([SampleSequence.once(laid_end_to_end(slot())) for slot in slots], epoch)

    def _laid_out(self, epoch: int) -> list[SlotSamples]:
        """Return an epoch's samples for each micro-batch index of this process."""
        slots = self._slots(epoch)
        if not isinstance(self._selection, Selection):
            return slots
        return [partial(_selected, self._selection, slot) for slot in slots]

    def _slots(self, epoch: int) -> list[SlotSamples]:
        share, config = self._share, self._config
        if not self._shuffle:
            return [
                partial(chunks_in_stored_order, self._sizes, slot, share.num_slots) for slot in share.slots
            ]
        lanes = EpochLanes(
            self._sizes,
            seed=self._seed,
            epoch=epoch,
            num_lanes=config.lanes,
            window=config.shuffle_records,
        )
        return [partial(lanes.chunks, slot, share.num_slots) for slot in share.slots]

    @property
    def _num_lanes(self) -> int:
        """Number of lanes that this process interleaves."""
        num_slots = len(self._share.slots)
        return self._config.lanes // self._share.num_slots * num_slots if self._shuffle else num_slots

    def _reading(self) -> Reading:
        # Small reads need the most in flight to hide latency; large ones take the most memory and time.
        smallest, largest = min(self._policy.candidates), max(self._policy.candidates)
        in_flight = read_ahead.reads_in_flight(self._storage_config, self._mean_read_bytes(smallest))
        per_call = read_ahead.reads_per_call(in_flight, self._records.reads_many and self._fields is None)
        # Lanes of different micro-batches reach new records at the same time; lanes of the same do not.
        at_once = self._config.shuffle_records * len(self._share.slots)
        # A policy that follows training chooses when a read begins: an earlier choice is less informed.
        at_start = self._config.shuffle_records * self._num_lanes if self._policy.by_epoch else at_once
        under_way = read_ahead.by_calls(in_flight, per_call)
        ahead = read_ahead.reads_ahead(under_way, at_once, at_start, self._mean_read_bytes(largest))
        if self._storage_config is not None and self._storage_config.reads_in_flight is not None:
            ahead = max(ahead, in_flight)  # an explicit number overrides the memory limit
        return Reading(in_flight, self._config.records_ahead or ahead, per_call)

    @property
    def _largest_group(self) -> int:
        return max(*self._policy.candidates, self._stage.highest_group)

    def _mean_read_bytes(self, group: int) -> float:
        index = self._records.index
        return index.epoch_bytes(group) / len(index.records)

    def _check_timeout(self, group: int) -> None:
        index, timeout_s = self._records.index, self._config.timeout_s
        largest = int(index.prefixes_bytes(group).max())
        longest_s = read_ahead.longest_read_s(self._storage_config, largest)
        if timeout_s is not None and longest_s > timeout_s:
            raise ConfigError(
                f"loader.timeout_s={timeout_s:g}: wanted null, or more than the {longest_s:.1f} s that the "
                f"configured storage takes for the largest record ({largest} bytes up to scan group {group})."
            )
