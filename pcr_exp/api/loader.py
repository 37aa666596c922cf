"""Batches of images and labels for anyone's training loop: our `RecordLoader`, as torch's loaders are used.

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
from pcr_exp.policies.consensus import Alone, Consensus, open_consensus
from pcr_exp.policies.policy import PolicyInputs, Probe, ScanPolicy, SimilarityProbe
from pcr_exp.records.fields import RecordFields
from pcr_exp.records.reader import RecordSet

_LANES = 8
_FOREVER = 2**40
AskModel = Callable[[Probe], Mapping[int, float]]
"""Tries each of a probe's candidates and gives their scores: see `pcr_exp.policies.policy`."""


@contextmanager
def named_as_arguments() -> Iterator[None]:
    """A setting that is refused within has the name of its argument: `batch_size` for `training.batch_size`.

    A decorator as well. Keys of a policy stay whole: `scan.groups` are the groups of the argument `scan`.

    Raises:
        ConfigError: as within.
    """
    try:
        yield
    except SettingError as error:
        if error.key.startswith("scan."):
            raise
        argument, wanted = error.key.rpartition(".")[2], error.wanted.replace("null", "None")
        raise ConfigError(f"{argument}={error.given!r}: wanted {wanted}.") from error


class DatasetLoader:
    """An iterable of (images, labels), an epoch each time. `close` ends its processes, as dropping it does.

    `images` are what the transforms give, stacked: [B, ...]; with `image_size` uint8 [B, H, W, 3]. `labels`
    are int64 [B], or as `pcr_exp.open(labels=...)` says; with fields a dict of these, as `label`, and of the
    fields: masks and arrays are stacked, boxes, texts and JSON are lists. The same seed gives the same
    batches, of any number of workers. Each iteration is the next epoch, the first after `load_state_dict` or
    `set_epoch` the one that was asked for.
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
        """Nothing is read before the first batch.

        Args:
            records: Of a split.
            scan: Which bytes of them are read, as `pcr_exp.open` takes it.
            label: Name of the label.
            label_values: [number of classes] or [number of classes, K], the label of each class.
            batch_size: Images of each process's batch.
            fields: What travels beside the images, and comes with them; a dataset gives its own.
            transform: Called with every image; None: our own crops of `image_size`.
            images_as: What it takes, as `pcr_exp.open` says.
            image_size: Without a transform: random-resized-crops of this size (px), flipped at random; with
                `augment=False` centre crops. The fastest way: no more is decoded than a crop shows.
            augment: Whether these crops are random.
            shuffle: Whether each epoch has an order of its own, or the order of the records.
            drop_last: Leave out a last batch that is shorter. One full batch must be there.
            seed: Of order and transforms. All processes give the same.
            rank: This process's number.
            world_size: How many processes share an epoch; each gives as many batches.
            global_batch_size: Of all processes' batches together, where it is more than one of each: then a
                state that was saved by four processes goes on with two.
            num_workers: Decoding processes; 0 decodes in this one.
            decode: As `pcr_exp.open` says.
            lanes: Records that are read side by side, of all processes together; the order depends on it. By
                default 8, or as many more as processes can share.
            reads_in_flight: Reads under way at a time (None: 4).
            timeout_s: An error, if nothing has come for this long (None: no limit).
            on_corrupt: `fail` stops at the first image that is damaged; `replace` takes another of its
                record, which follows from seed and epoch, and logs it. A file that was damaged before it was
                stored may pass: decoding ends behind a crop's last row.
            crop_scale: With `image_size`: smallest and largest share of an image's area that a random crop
                takes (None: 0.08 and 1).
            crop_ratio: Lowest and highest columns / rows of it (None: 3/4 and 4/3).
            horizontal_flip: Whether half of these crops are mirrored (None: yes).
            eval_crop_fraction: Share of the short side that a centre crop takes (None: 0.875).
            antialias: Whether crops that shrink are filtered (None: yes).
            probe: For policies that try scan groups on the model: gives the scores of its candidates.
            selection: The images that are used (None: all); `RecordDataset.select` and `mix` give it.

        Raises:
            ConfigError: an argument cannot work, alone or with others or with the records.
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
        """(epoch, batch) that the open stream gives next."""
        self._stream: Iterator[Batch] = iter(())
        self._observer = Observer(self._policy)

    def __len__(self) -> int:
        """Batches that this process gives in an epoch."""
        return self._num_updates * self._num_parts

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        return self._position.epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Any]]:
        """The batches of an epoch.

        Raises:
            RecordError, StorageError: an image could not be read or decoded; all batches before came out.
            LoaderError: a worker process died or nothing came for `timeout_s`; or another iteration began.
        """
        self._position.begin()
        self._turn += 1
        return self._epoch_batches(self._turn)

    def _epoch_batches(self, turn: int) -> Iterator[tuple[Tensor, Any]]:
        epoch = self._position.epoch
        try:
            for number in range(self._position.batch, len(self)):
                if turn != self._turn:
                    raise LoaderError("another iteration of this loader has begun: there is one at a time.")
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
            if turn == self._turn:  # validation between epochs is no training
                self._observer.rest()
        if turn == self._turn:
            self._position.end()
            if not self._shuffle:  # evaluation: nothing is read ahead for an epoch that may never come
                self.close()

    def _open_policy(self, records: RecordSet, scan: Scan, seed: int) -> ScanPolicy:
        inputs = PolicyInputs(seed, self._consensus, records.index, records.storage.counts)
        return policy_of_scan(scan, inputs)

    def _labels(self, batch: Batch) -> Tensor:
        """The labels that a batch is given with."""
        return self._label_values[batch.labels]

    def _next(self, epoch: int, number: int) -> Batch:
        stream = self._open_stream(epoch, number)
        self._open_at = None  # a stream that fails here is over
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
        """Find out what the policy wants to know before it decides an epoch."""
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
        """Tell the scan policy of the update on the batch that came last; the others need not be told.

        Raises:
            LoaderError: there was no batch since.
        """
        self._observer.observe(loss)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of this epoch (from 0); one that is to be continued stays so."""
        self._position.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where it is, to the batch, and what its policy knows: plain values, for `torch.save` or JSON."""
        return {**self._position.state_dict(), "policy": self._policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state, with any number of workers: with the batch after the last that came.

        Raises:
            LoaderError: the state is of other images or settings; the message says which differ.
        """
        self._position.load_state_dict(state)
        self._policy.load_state_dict(dict(state["policy"]))
        self._turn += 1
        self.close()

    def close(self) -> None:
        """End its threads and processes; the next iteration starts others."""
        self._open_at = None
        self._stream = iter(())  # what it holds may be freed
        self._loader.close()

    def __enter__(self) -> DatasetLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # one that was refused
            self.close()


def _require_probe(scan: Scan, probe: AskModel | None) -> None:
    if asks_the_model(scan) and probe is None:
        raise ConfigError(
            f"scan={scan!r}: this policy tries scan groups on the model, which the loader does not have. "
            "Give loader(probe=...), a function from a probe to the score of each candidate, or use "
            "`python -m experiments.train`, which has one."
        )


def _num_full_batches(share: RankShare, num_samples: int, batch_size: int) -> int:
    """Full batches of an epoch and slot. Raises SettingError if there is none."""
    num_samples = share.samples_per_slot(num_samples)
    wanted = (
        f"at most {num_samples}, this process's images of an epoch, or drop_last=False, as no batch would "
        "ever be full"
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
            "transform=None: wanted a transform, which ends with images of one size, or image_size=224 for "
            "this loader's own crops."
        )
    require(image_size >= 1, "image_size", image_size, "at least 1")
    antialias = given.pop("antialias", ANTIALIAS)
    settings = CropSettings(
        train_px=image_size, eval_px=image_size, augment=AugmentConfig(**given), antialias=antialias
    )
    return train_transform(settings) if augment else eval_transform(settings)


def _open_consensus(world_size: int) -> Consensus:
    """That of torch's process group, if this is one of several processes."""
    if world_size == 1 or not dist.is_available() or not dist.is_initialized():
        return Alone()
    if dist.get_backend() == "nccl":
        return open_consensus(torch.device("cuda", torch.cuda.current_device()))
    return open_consensus(torch.device("cpu"))
