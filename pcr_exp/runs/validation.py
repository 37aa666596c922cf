"""What evaluations of a run look at: the original images, and the same at the scan group of training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from pcr_exp.config.runners import TrainConfig
from pcr_exp.loading.loader import Batch, RecordLoader
from pcr_exp.runs.data import RunData, validation_loader
from pcr_exp.training.evaluate import evaluate
from pcr_exp.training.trainer import Trainer

CACHE_BYTES = 2**30
"""Decoded images up to this size are kept between evaluations: the same pixels need no second decoding."""


class ValidationBatches:
    """All validation batches, as often as they are asked for."""

    def __init__(self, loader: RecordLoader, image_size: int, cache_bytes: int | None = None) -> None:
        """Keep the images if num_samples x image_size^2 x 3 bytes fit in `cache_bytes`, or CACHE_BYTES."""
        self._loader = loader
        self.cached: list[Batch] | None = None
        """All of them, once they have been asked for, if they fit."""
        most = CACHE_BYTES if cache_bytes is None else cache_bytes
        self._fits = loader.num_samples * image_size**2 * 3 <= most

    def __iter__(self) -> Iterator[Batch]:
        if self.cached is not None:
            return iter(self.cached)
        stream = self._loader.batches(0, 0, 1)
        if not self._fits:
            return stream
        self.cached = list(stream)
        return iter(self.cached)


class Validation:
    """The scores of a model at each of `training.eval_groups`, on the images of `training.eval_split`."""

    def __init__(self, config: TrainConfig, data: RunData, full: ValidationBatches) -> None:
        """`full` are the batches of the original images."""
        self._config = config
        self._data = data
        self._full = full
        self._at_group: dict[int, list[Batch]] = {}
        """Those of the last scan group that was asked for: a run's group seldom changes."""

    def scores(self, trainer: Trainer, scan_group: int) -> dict[str, dict[str, Any]]:
        """Return the metrics for each eval group; `same` is read up to `scan_group`.

        Baseline records have but one group, the original images: their two scores are equal.

        Raises:
            PcrExpError: records are missing or damaged, or a metric is not defined.
        """
        scores = {"full": _scores(trainer, self._full)}
        if "same" not in self._config.training.eval_groups:
            return scores
        if self._config.scan.encoding == "baseline":
            return {**scores, "same": scores["full"]}
        return {**scores, "same": self._at(trainer, scan_group)}

    def _at(self, trainer: Trainer, scan_group: int) -> dict[str, Any]:
        if scan_group in self._at_group:
            return _scores(trainer, self._at_group[scan_group])
        training = self._config.training
        with closing(validation_loader(self._config, self._data, training.eval_split, scan_group)) as loader:
            batches = ValidationBatches(loader, training.eval_image_size)
            scores = _scores(trainer, batches)
        self._at_group = {} if batches.cached is None else {scan_group: batches.cached}
        return scores


def _scores(trainer: Trainer, batches: Iterable[Batch]) -> dict[str, Any]:
    return evaluate(trainer.model, trainer.forward, trainer.task, batches)
