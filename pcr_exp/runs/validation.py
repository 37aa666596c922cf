"""Validation between updates: evaluation images, and the probes of scan policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.fixed_sample import FixedSample, SampleBatch, mean_similarities
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.transform import eval_transform
from pcr_exp.measuring.tolerance.answer import loss_bounds
from pcr_exp.measuring.tolerance.features import extract_features, open_backbone
from pcr_exp.measuring.tolerance.images import RecordImages
from pcr_exp.policies.consensus import Consensus
from pcr_exp.policies.policy import (
    CosineProbe,
    Probe,
    SimilarityProbe,
    StaticScan,
    ToleranceProbe,
    TrialProbe,
)
from pcr_exp.runs.data import RunData, full_training_loader, training_loader, validation_loader
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.evaluate import (
    per_image,
    renewed_statistics,
    scores_of,
    tally_batches,
)
from pcr_exp.training.models import EfficientNetLiteConfig
from pcr_exp.training.probes import gradient_cosines, trial_losses
from pcr_exp.training.report import Progress
from pcr_exp.training.task import primary_metric_of
from pcr_exp.training.trainer import Trainer

NUM_RENEWED_BY = 2048
"""Training images for re-estimating BatchNorm statistics; each gives many values per channel."""

CACHE_BYTES = 2**30
"""Decoded images up to this size in all are cached between evaluations, to avoid decoding them again."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of an evaluation."""

    scores: dict[str, Any]
    """The task's metrics, as in rows."""
    per_image: dict[str, NDArray[Any]] | None
    """Arrays [N] over all images, named as in `training.task.PER_IMAGE`. Only in the first process, and None
    there too if the task keeps none or damaged images were replaced."""


def num_renewing(num_train: int, batch_size: int) -> int:
    """Return the images that renew BatchNorm statistics: whole batches, up to all training images."""
    return min(num_train, -(-NUM_RENEWED_BY // batch_size) * batch_size)


class ValidationBatches:
    """Validation batches that can be iterated repeatedly: all of them, or a process's share."""

    def __init__(self, loader: RecordLoader, image_size: int, processes: Processes | None = None) -> None:
        """Cache the images in memory if they fit in CACHE_BYTES, at image_size^2 x 3 bytes each.

        With `processes`, each process has a contiguous range of whole batches, in order of rank.
        """
        self._loader = loader
        rank, world_size = (0, 1) if processes is None else (processes.rank, processes.world_size)
        num_batches = loader.num_batches
        self._first, self._end = rank * num_batches // world_size, (rank + 1) * num_batches // world_size
        self.cached: list[Batch] | None = None
        """All of these batches after the first iteration, if they fit."""
        share = (self._end - self._first) / num_batches
        self._fits = share * loader.num_samples * image_size**2 * 3 <= CACHE_BYTES

    def __iter__(self) -> Iterator[Batch]:
        if self.cached is not None:
            return iter(self.cached)
        if self._first == self._end:
            return iter(())
        stream = self._loader.batches(0, self._first, 1, self._end)
        if not self._fits:
            return stream
        self.cached = list(stream)
        return iter(self.cached)


class Validation:
    """Scores of a model at each of `training.eval_groups`, on the images of `training.eval_split`."""

    def __init__(
        self, config: TrainConfig, data: RunData, full: ValidationBatches, processes: Processes
    ) -> None:
        """Set up evaluation; `full` holds this process's batches of the original images."""
        self._processes = processes
        self._config = config
        self._data = data
        self._full = full
        self._at_group: dict[int, list[Batch]] = {}
        """Cached batches of the last scan group evaluated; a run's group seldom changes."""
        self._renewing: list[Batch] | None = None
        """Training images with all scans, cached on first use."""

    def evaluate(self, trainer: Trainer, scan_group: int) -> dict[str, Evaluation]:
        """Evaluate the model for each eval group; `same` is read up to the first process's `scan_group`.

        All processes call this, each evaluates its share, and all get the metrics of all images.

        Baseline records have a single group, the original images, so `full` and `same` have equal scores.

        Raises:
            PcrExpError: records are missing or damaged, or a metric is undefined.
        """
        full = self._evaluate(trainer, self._full)
        found, wanted = {"full": full}, self._config.training.eval_groups
        if "same" in wanted:
            is_whole = self._config.scan.encoding == "baseline"
            # The last batches of processes may differ in their group, and one score must not mix groups.
            shared_group = self._processes.from_first(lambda: scan_group)
            found["same"] = full if is_whole else self._at(trainer, shared_group)
        if "renewed" in wanted:
            found["renewed"] = self._renewed(trainer)
        return found

    def _renewed(self, trainer: Trainer) -> Evaluation:
        if self._renewing is None:
            with full_training_loader(self._config, self._data) as loader:
                batch_size = self._config.training.batch_size
                num_batches = -(-num_renewing(loader.num_samples, batch_size) // batch_size)
                self._renewing = list(loader.batches(0, 0, 1, num_batches))
        # Every process measures the same statistics on the same images.
        with renewed_statistics(trainer.model, trainer.forward, self._renewing):
            return self._evaluate(trainer, self._full)

    def _at(self, trainer: Trainer, scan_group: int) -> Evaluation:
        if scan_group in self._at_group:
            return self._evaluate(trainer, self._at_group[scan_group])
        training = self._config.training
        with closing(validation_loader(self._config, self._data, training.eval_split, scan_group)) as loader:
            batches = ValidationBatches(loader, training.eval_image_size, processes=self._processes)
            found = self._evaluate(trainer, batches)
        self._at_group = {} if batches.cached is None else {scan_group: batches.cached}
        return found

    def _evaluate(self, trainer: Trainer, batches: Iterable[Batch]) -> Evaluation:
        own = tally_batches(trainer.model, trainer.forward, trainer.task, batches)
        shares = self._processes.gather(own)
        scores = self._processes.from_first(lambda: scores_of(shares, trainer.task))
        return Evaluation(scores, per_image(shares) if self._processes.first else None)


@dataclass(slots=True)
class Probes:
    """Probes of scan policies, which read all their data through the training storage, at its speed."""

    config: TrainConfig
    data: RunData
    trainer: Trainer
    processes: Processes
    consensus: Consensus
    tune_loss: Callable[[], float]
    """Returns the loss on the tuning images, so that decisions do not use the reported images."""
    steps_per_epoch: int
    sample: FixedSample | None = None

    def run(self, probe: Probe, progress: Progress) -> dict[int, float]:
        """Return the candidates' scores, averaged over all ranks; training is paused at `progress`.

        Raises:
            PcrExpError: data cannot be read or decoded, or a loss is not finite.
        """
        scores = self._scores(probe, progress)
        return dict(zip(scores, self.consensus.mean(list(scores.values())), strict=True))

    def _scores(self, probe: Probe, progress: Progress) -> dict[int, float]:
        if isinstance(probe, SimilarityProbe):
            return mean_similarities(self._sample(probe.num_images), probe.candidates)
        if isinstance(probe, CosineProbe):
            return self._cosines(probe, progress)
        if isinstance(probe, ToleranceProbe):
            return self._loss_bounds(probe)
        return self._trial_losses(probe, progress)

    def _loss_bounds(self, probe: ToleranceProbe) -> dict[int, float]:
        config, sample = self.config, self._sample(probe.num_images)
        groups = sorted({*probe.candidates, sample.full_group})
        transform = eval_transform(config.crops, probe.image_size)
        # A probe must leave torch's random state and number of threads unchanged.
        with torch.random.fork_rng():
            backbone = open_backbone(EfficientNetLiteConfig(pretrained=True), self.trainer.device)
            found = extract_features(RecordImages(sample, groups, transform), backbone, folder=None)
        indexes = [sample.label(position, config.dataset.label) for position in found.positions]
        labels = self.trainer.task.target(torch.tensor(indexes, dtype=torch.int64)).numpy()
        bounds = loss_bounds(
            found.values, labels, groups, primary_metric_of(config.task).name, seed=config.seed
        )
        return {group: bounds[probe.deployment][group] for group in probe.candidates}

    def _cosines(self, probe: CosineProbe, progress: Progress) -> dict[int, float]:
        config, sample = self.config, self._sample(probe.num_images)
        transform = eval_transform(config.crops, config.training.image_size)

        def batches(group: int) -> Iterator[SampleBatch]:
            label, batch_size = config.dataset.label, config.training.batch_size
            return sample.batches(group, transform, label=label, batch_size=batch_size)

        return gradient_cosines(
            self.trainer, batches, probe.candidates, sample.full_group, step=progress.step
        )

    def _trial_losses(self, probe: TrialProbe, progress: Progress) -> dict[int, float]:
        config = replace(self.config, echo=EchoConfig())  # a trial is judged by fresh images, not by repeats

        @contextmanager
        def batches(group: int) -> Iterator[Iterator[Batch]]:
            # The images that training will see next, so that all candidates see the same ones.
            with training_loader(config, self.data, StaticScan(group), self.processes) as loader:
                yield loader.batches(progress.epoch, 0, progress.epoch + 1, probe.num_steps)

        return trial_losses(
            self.trainer,
            batches,
            probe.candidates,
            step=progress.step,
            steps_per_epoch=self.steps_per_epoch,
            evaluate=self.tune_loss if probe.judge == "tune" else None,
        )

    def _sample(self, num_images: int) -> FixedSample:
        train = self.data.train
        # A smaller training set is a whole sample, which must not be read again.
        if self.sample is None or len(self.sample) < min(num_images, train.index.num_samples):
            decode = train.open_decoder(self.config.crops.decode)
            self.sample = FixedSample(train, num_images, decode=decode)
        return self.sample
