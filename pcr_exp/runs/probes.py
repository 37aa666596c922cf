"""What scan policies want to know, found out with a run's own data, model and storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from pcr_exp.config.echo import EchoConfig
from pcr_exp.config.runners import TrainConfig
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.fixed_sample import FixedSample, SampleBatch, mean_similarities
from pcr_exp.loading.transform import EvalTransform
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
from pcr_exp.runs.data import RunData, training_loader
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.efficientnet_lite import EfficientNetLiteConfig
from pcr_exp.training.probes import gradient_cosines, trial_losses
from pcr_exp.training.report import Progress
from pcr_exp.training.task import headline_of
from pcr_exp.training.trainer import Trainer


@dataclass(slots=True)
class Probes:
    """Every byte that a probe needs comes through the storage that training reads from, at its speed."""

    config: TrainConfig
    data: RunData
    trainer: Trainer
    processes: Processes
    consensus: Consensus
    tune_loss: Callable[[], float]
    """The loss on the images to tune by: what is reported is not what is decided on."""
    steps_per_epoch: int
    sample: FixedSample | None = None

    def run(self, probe: Probe, progress: Progress) -> dict[int, float]:
        """The candidates' scores, the same on all ranks; training stands still at `progress` meanwhile.

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
        transform = EvalTransform(probe.image_size, config.dataset.augment, antialias=config.loader.antialias)
        # Neither torch's random state nor its number of threads may tell that there was a probe.
        with torch.random.fork_rng():
            backbone = open_backbone(EfficientNetLiteConfig(pretrained=True), self.trainer.device)
            found = extract_features(RecordImages(sample, groups, transform), backbone, folder=None)
        labels = np.array([sample.label(position, config.dataset.label) for position in found.positions])
        bounds = loss_bounds(found.values, labels, groups, headline_of(config.task).name, seed=config.seed)
        return {group: bounds[probe.deployment][group] for group in probe.candidates}

    def _cosines(self, probe: CosineProbe, progress: Progress) -> dict[int, float]:
        config, sample = self.config, self._sample(probe.num_images)
        transform = EvalTransform(
            config.training.image_size, config.dataset.augment, antialias=config.loader.antialias
        )

        def batches(group: int) -> Iterator[SampleBatch]:
            label, batch_size = config.dataset.label, config.training.batch_size
            return sample.batches(group, transform, label=label, batch_size=batch_size)

        return gradient_cosines(
            self.trainer, batches, probe.candidates, sample.full_group, step=progress.step
        )

    def _trial_losses(self, probe: TrialProbe, progress: Progress) -> dict[int, float]:
        config = replace(self.config, echo=EchoConfig())  # a trial is judged by what is read, not by repeats

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
        if self.sample is None or len(self.sample) < num_images:
            train = self.data.train
            decode = train.open_decoder(self.config.loader.decode)
            self.sample = FixedSample(train, num_images, decode=decode)
        return self.sample
