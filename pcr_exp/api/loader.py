"""Batches of images and labels for any training loop: `RecordLoader`, used like torch's loaders.

A training loop:

    for epoch in range(loader.epoch, 90):
        for images, labels in loader:
            loss = ...
            loader.observe(loss=float(loss))  # only for policies that follow training
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pcr_exp.api.following import Observer, Position
from pcr_exp.api.scan import Scan, asks_the_model, plain, policy_of_scan
from pcr_exp.config.check import require
from pcr_exp.config.crops import CropSettings
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import ANTIALIAS, LoaderConfig, StorageConfig
from pcr_exp.errors import ConfigError, LoaderError, SettingError
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.fixed_sample import FixedSample, mean_similarities
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.mixture import Mixture
from pcr_exp.loading.order import RankShare, open_share
from pcr_exp.loading.selection import Selection
from pcr_exp.loading.transform import Transform, eval_transform, train_transform
from pcr_exp.loading.whole_images import WholeImageTransform
from pcr_exp.policies.consensus import Consensus, SingleRank, open_consensus
from pcr_exp.policies.policy import PolicyInputs, Probe, ScanPolicy, SimilarityProbe
from pcr_exp.records.fields import RecordFields
from pcr_exp.records.reader import RecordSet

_LANES = 8
_FOREVER = 2**40
AskModel = Callable[[Probe], Mapping[int, float]]
"""Function that tries each candidate of a probe and returns the scores; see `pcr_exp.policies.policy`."""


@contextmanager
def named_as_arguments() -> Iterator[None]:
    """Report invalid settings by their argument's name: `batch_size` for `training.batch_size`.

    Also works as a decorator. Keys of a policy stay whole: `scan.groups` is part of the argument `scan`.

    Raises:
        ConfigError: as raised within.
    """
    try:
        yield
    except SettingError as error:
        if error.key.startswith("scan."):
            raise
        argument, wanted = error.key.rpartition(".")[2], error.wanted.replace("null", "None")
        raise ConfigError(f"{argument}={error.given!r}: wanted {wanted}.") from error


class DatasetLoader:
    """Iterable of (images, labels), one epoch per iteration. `close` or deletion ends its processes.

    `images` are the stacked outputs of the transform, [B, ...]; with `image_size`, uint8 [B, H, W, 3].
    `labels` are int64 [B], or as set by `pcr_exp.open(labels=...)`. With fields, they are a dict of `label`
    and the fields: masks and arrays are stacked; boxes, texts and JSON are lists. The same seed gives the
    same batches for any number of workers. Each iteration is the next epoch; the first one after
    `load_state_dict` or `set_epoch` is the requested epoch.
    """

    @named_as_arguments()
    def __init__(
        self,
        records: RecordSet,
        scan: Scan,
        *,
        label: str,
        label_values: Tensor,
        batch_size: int,
        fields: RecordFields | None = None,
        transform: Callable[..., Any] | None = None,
        images_as: str = "auto",
        image_size: int | None = None,
        augment: bool = True,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        global_batch_size: int | None = None,
        num_workers: int = 1,
        decode: str = "scaled",
        lanes: int | None = None,
        reads_in_flight: int | None = None,
        timeout_s: float | None = 300.0,
        on_corrupt: str = "fail",
        crop_scale: Sequence[float] | None = None,
        crop_ratio: Sequence[float] | None = None,
        horizontal_flip: bool | None = None,
        eval_crop_fraction: float | None = None,
        antialias: bool | None = None,
        probe: AskModel | None = None,
        selection: Selection | Mixture | None = None,
    ) -> None:
        """Nothing is read before the first batch is requested.

        Args:
            records: Records of a split.
            scan: Which of their bytes to read, as in `pcr_exp.open`.
            label: Name of the label.
            label_values: [number of classes] or [number of classes, K], the label of each class.
            batch_size: Images in each batch of a process.
            fields: Fields stored beside the images and returned with them; a dataset passes its own.
            transform: Called with every image (None: our own crops of `image_size`).
            images_as: Input type of the transform, as in `pcr_exp.open`.
            image_size: Without a transform: side (px) of random resized crops, flipped at random; with
                `augment=False`, of centre crops. This is fastest, as only the cropped region is decoded.
            augment: Whether these crops are random.
            shuffle: Shuffle every epoch anew, or else keep the order of the records.
            drop_last: Drop a shorter last batch. At least one full batch is required.
            seed: Seed of order and transforms; the same in all processes.
            rank: Rank of this process.
            world_size: Number of processes that share an epoch; all have equally many batches.
            global_batch_size: Images per update over all processes (None: one batch of each). With several
                batches per process, two processes can resume a state that four saved.
            num_workers: Decoding processes; 0 decodes in this one.
            decode: As in `pcr_exp.open`.
            lanes: Records that all processes together read in parallel; the order depends on it (None: 8,
                rounded up to a multiple of the batches per update).
            reads_in_flight: Concurrent reads (None: 4).
            timeout_s: Seconds without a read or a batch after which an error is raised (None: no limit).
            on_corrupt: `fail` stops at the first damaged image. `replace` takes another image of its record,
                determined by seed and epoch, and logs it. Damage from before a file was stored may go
                unnoticed, because decoding stops after a crop's last row.
            crop_scale: With `image_size`: minimum and maximum share of an image's area that a random crop
                covers (None: 0.08 and 1).
            crop_ratio: Minimum and maximum columns / rows of a random crop (None: 3/4 and 4/3).
            horizontal_flip: Whether half of these crops are mirrored (None: yes).
            eval_crop_fraction: Share of the short side that a centre crop covers (None: 0.875).
            antialias: Whether crops that are scaled down are filtered (None: yes).
            probe: Returns the scores of a probe's candidates, for policies that try scan groups on the model.
            selection: Images to use (None: all), set by `RecordDataset.select` and `mix`.

        Raises:
            ConfigError: an argument is invalid, by itself or with other arguments or the records.
            RecordError: the records lack a scan group.
        """
        _require_probe(scan, probe)
        share = open_share(rank, world_size, batch_size=batch_size, global_batch_size=global_batch_size)
        lanes = lanes if lanes is not None else -(-_LANES // share.num_slots) * share.num_slots
        crops = {
            "crop_scale": crop_scale,
            "crop_ratio": crop_ratio,
            "horizontal_flip": horizontal_flip,
            "eval_crop_fraction": eval_crop_fraction,
            "antialias": antialias,
        }
        index = records.index
        self._consensus = _open_consensus(world_size)
        self._policy = self._open_policy(records, scan, seed)
        self._loader = RecordLoader(
            records,
            self._policy,
            LoaderConfig(
                num_workers=num_workers,
                lanes=lanes,
                decode=decode,
                timeout_s=timeout_s,
                on_corrupt=on_corrupt,
            ),
            transform=_transform(transform, images_as, image_size, crops, augment=augment),
            fields=fields,
            label=label,
            batch_size=batch_size,
            seed=seed,
            shuffle=shuffle,
            storage_config=StorageConfig(name="", reads_in_flight=reads_in_flight),
            rank=rank,
            world_size=world_size,
            global_batch_size=global_batch_size,
            selection=selection,
        )
        num_samples = index.num_samples if selection is None else len(selection)
        num_full = _num_full_batches(share, num_samples, batch_size) if drop_last else None
        self._num_updates = self._loader.num_batches if num_full is None else num_full
        self._num_parts = len(share.slots)
        self.batch_size = batch_size
        self._records = records
        self._selection = selection if isinstance(selection, Selection) else None
        self._label_values = label_values
        self._has_fields = fields is not None
        self._shuffle = shuffle
        self._decode = decode
        self._probe = probe
        identity = {
            "images": index.fingerprint,
            "num_samples": num_samples,
            "seed": seed,
            "shuffle": shuffle,
            "drop_last": drop_last,
            "batch_size": batch_size,
            "lanes": lanes,
            "batches_per_update": share.num_slots,
            "scan": plain(scan),
        }
        if selection is not None:
            identity |= selection.identity
        self._position = Position(identity, self._num_parts)
        self._turn = 0
        self._open_at: tuple[int, int] | None = None
        """Next (epoch, batch) of the open stream; None if no stream is open."""
        self._stream: Iterator[Batch] = iter(())
        self._observer = Observer(self._policy)

    def __len__(self) -> int:
        """Number of batches of this process in an epoch."""
        return self._num_updates * self._num_parts

    @property
    def epoch(self) -> int:
        """Epoch of the next batch, from 0; after a `break`, of the one that was left."""
        return self._position.epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Any]]:
        """Iterate over the batches of an epoch.

        Raises:
            RecordError, StorageError: an image could not be read or decoded; earlier batches were yielded.
            LoaderError: a worker process died, nothing arrived for `timeout_s`, or another iteration began.
        """
        self._position.begin()
        self._turn += 1
        return self._epoch_batches(self._turn)

    def _epoch_batches(self, turn: int) -> Iterator[tuple[Tensor, Any]]:
        epoch = self._position.epoch
        try:
            for number in range(self._position.batch, len(self)):
                if turn != self._turn:
                    raise LoaderError(
                        "another iteration of this loader has begun: only one can run at a time."
                    )
                self._observer.rest()
                self._settle(epoch)
                with self._observer.waiting():
                    batch = self._next(epoch, number)
                self._position.batch = number + 1
                is_last = number + 1 == len(self)
                self._open_at = (epoch + 1, 0) if is_last else (epoch, number + 1)
                self._observer.give(batch, ends_epoch=is_last)
                labels = self._labels(batch)
                yield batch.images, {"label": labels, **batch.fields} if self._has_fields else labels
        finally:
            if turn == self._turn:  # validation between epochs is not training
                self._observer.rest()
        if turn == self._turn:
            self._position.end()
            if not self._shuffle:  # evaluation: do not read ahead for an epoch that may never come
                self.close()

    def _open_policy(self, records: RecordSet, scan: Scan, seed: int) -> ScanPolicy:
        inputs = PolicyInputs(seed, self._consensus, records.index, records.storage.counts)
        return policy_of_scan(scan, inputs)

    def _labels(self, batch: Batch) -> Tensor:
        """Return the label values of a batch."""
        return self._label_values[batch.labels]

    def _next(self, epoch: int, number: int) -> Batch:
        stream = self._open_stream(epoch, number)
        self._open_at = None  # a stream that fails here cannot continue
        return next(stream)

    def _open_stream(self, epoch: int, number: int) -> Iterator[Batch]:
        if self._open_at != (epoch, number):
            update, part = divmod(number, self._num_parts)
            num_epochs = _FOREVER if self._shuffle else epoch + 1
            self._stream = self._loader.batches(epoch, update, num_epochs, self._num_updates)
            for _ in range(part):
                next(self._stream)
        return self._stream

    def _settle(self, epoch: int) -> None:
        """Run the probe that the policy needs before it decides on an epoch, if any."""
        wanted = self._policy.wanted_probe(epoch)
        if wanted is None:
            return
        self._loader.pause()
        scores = dict(self._scores(wanted))
        if not all(map(math.isfinite, scores.values())):
            raise LoaderError(f"probe: wanted a finite score for every scan group, and got {scores}.")
        self._policy.decide(dict(zip(scores, self._consensus.mean(list(scores.values())), strict=True)))
        self._loader.resume()

    def _scores(self, wanted: Probe) -> Mapping[int, float]:
        if self._probe is not None:
            return self._probe(wanted)
        if isinstance(wanted, SimilarityProbe):
            decode = self._records.open_decoder(self._decode)
            sample = FixedSample(self._records, wanted.num_images, decode=decode, selection=self._selection)
            return mean_similarities(sample, wanted.candidates)
        raise LoaderError(
            f"the scan policy wants a {type(wanted).__name__}, which needs the model: give loader(probe=...)."
        )

    def observe(self, *, loss: float) -> None:
        """Report the update on the last batch to the scan policy. Only policies that follow training need it.

        Raises:
            LoaderError: there was no batch since the last call.
        """
        self._observer.observe(loss)

    def set_epoch(self, epoch: int) -> None:
        """Start the next iteration at this epoch (from 0); if it was restored midway, it is continued."""
        self._position.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position, to the batch, and the policy's state as plain values (`torch.save`, JSON)."""
        return {**self._position.state_dict(), "policy": self._policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at the batch after the last one of a saved state, with any number of workers.

        Raises:
            LoaderError: the state belongs to other images or settings; the message names a difference.
        """
        self._position.load_state_dict(state)
        self._policy.load_state_dict(dict(state["policy"]))
        self._turn += 1
        self.close()

    def close(self) -> None:
        """End threads and processes; the next iteration starts new ones."""
        self._open_at = None
        self._stream = iter(())  # frees what the stream holds
        self._loader.close()

    def __enter__(self) -> DatasetLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # `__init__` raised
            self.close()


def _require_probe(scan: Scan, probe: AskModel | None) -> None:
    if asks_the_model(scan) and probe is None:
        raise ConfigError(
            f"scan={scan!r}: this policy tries scan groups on the model, which the loader does not have. "
            "Give loader(probe=...), a function from a probe to the score of each candidate, or use "
            "`python -m experiments.train`, which has one."
        )


def _num_full_batches(share: RankShare, num_samples: int, batch_size: int) -> int:
    """Return the number of full updates in an epoch. Raises SettingError if there are none."""
    num_samples = share.samples_per_slot(num_samples)
    wanted = (
        f"at most {num_samples} (this process's images per epoch), or drop_last=False, because no batch "
        "would ever be full"
    )
    require(batch_size <= num_samples, "batch_size", batch_size, wanted)
    return num_samples // batch_size


def _transform(
    transform: Callable[..., Any] | None,
    images_as: str,
    image_size: int | None,
    crops: Mapping[str, Any],
    *,
    augment: bool,
) -> Transform | WholeImageTransform:
    given = {name: value for name, value in crops.items() if value is not None}
    if transform is not None and image_size is not None:
        raise ConfigError(f"image_size={image_size}: wanted either a transform or image_size, not both.")
    if transform is not None:
        if given:
            name, value = next(iter(given.items()))
            raise ConfigError(f"{name}={value!r}: wanted image_size with it; a transform crops by itself.")
        return WholeImageTransform(transform, images_as)
    if image_size is None:
        raise ConfigError(
            "transform=None: wanted a transform whose images all have one size, or image_size=224 for this "
            "loader's own crops."
        )
    require(image_size >= 1, "image_size", image_size, "at least 1")
    antialias = given.pop("antialias", ANTIALIAS)
    if not augment and (unused := [name for name in given if name != "eval_crop_fraction"]):
        name = unused[0]
        raise ConfigError(f"{name}={given[name]!r}: wanted augment=True with it; centre crops do not use it.")
    settings = CropSettings(
        train_px=image_size, eval_px=image_size, augment=AugmentConfig(**given), antialias=antialias
    )
    return train_transform(settings) if augment else eval_transform(settings)


def _open_consensus(world_size: int) -> Consensus:
    """Return the consensus of torch's process group, or `SingleRank` without a group of several processes."""
    if world_size == 1 or not dist.is_available() or not dist.is_initialized():
        return SingleRank()
    if dist.get_backend() == "nccl":
        return open_consensus(torch.device("cuda", torch.cuda.current_device()))
    return open_consensus(torch.device("cpu"))
