"""One stretch of a run, from its start or a checkpoint to its end or an interruption."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from pcr_exp.config.runners import TrainConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.policy import ScanPolicy, open_policy
from pcr_exp.runs.data import RunData, training_loader, validation_loader
from pcr_exp.runs.validation import ValidationBatches
from pcr_exp.training.clocks import Clocks
from pcr_exp.training.device import synchronizer
from pcr_exp.training.evaluate import evaluate
from pcr_exp.training.loop import fit
from pcr_exp.training.models import check_model, open_model
from pcr_exp.training.progress import Progress
from pcr_exp.training.report import Row
from pcr_exp.training.trainer import Trainer


@dataclass(slots=True)
class Session:
    """The parts of a run, put together: everything that a checkpoint saves is reached from here."""

    trainer: Trainer
    loader: RecordLoader
    policy: ScanPolicy
    clocks: Clocks
    validation: ValidationBatches
    session_bytes: Callable[[], int]
    """Bytes of training records that storage delivered in this session."""
    earlier_bytes: int = 0
    """The same, of the sessions before."""
    progress: Progress = field(default_factory=Progress)

    @property
    def total_steps(self) -> int:
        """Updates of the whole run."""
        return self.trainer.config.epochs * self.loader.num_batches

    def bytes_read(self) -> int:
        """Return the bytes of training records that storage delivered since the run began."""
        return self.earlier_bytes + self.session_bytes()

    def rows(
        self, *, checkpoint: Callable[[], None], should_stop: Callable[[], bool]
    ) -> Generator[Row, None, None]:
        """Train and yield rows; see `pcr_exp.training.loop.fit`."""
        return fit(
            self.trainer,
            self.loader,
            self.policy,
            self.progress,
            self.clocks,
            evaluate=lambda: evaluate(self.trainer.model, self.trainer.forward, self.validation),
            bytes_read=self.bytes_read,
            checkpoint=checkpoint,
            should_stop=should_stop,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything that training changes."""
        return {
            **self.trainer.state_dict(),
            "progress": self.progress.state_dict(),
            "policy": self.policy.state_dict(),
            "clocks": self.clocks.state_dict(),
            "bytes_read": self.bytes_read(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`; to be called before `rows`."""
        self.trainer.load_state_dict(state)
        self.progress = Progress.from_state(state["progress"])
        self.policy.load_state_dict(state["policy"])
        self.clocks.load_state_dict(state["clocks"])
        self.earlier_bytes = state["bytes_read"]


@contextmanager
def open_session(config: TrainConfig, data: RunData, device: torch.device) -> Iterator[Session]:
    """Put a run together, at its beginning; its loaders are closed with the block.

    Raises:
        ConfigError: the model does not exist, does not take the batches that it would get, or does not suit
            `activations`.
    """
    training = config.training
    torch.manual_seed(config.seed)  # of the model's fresh weights
    model = open_model(config.model, data.num_classes(config.dataset.label))
    check_model(
        model,
        config.model.name,
        train_batches=_batch_shapes(data.train.index.num_samples, training.batch_size, training.image_size),
        eval_batches=_batch_shapes(data.val.index.num_samples, training.batch_size, training.eval_image_size),
    )
    policy = open_policy(config.scan)
    index_bytes = data.storage.bytes_read
    with (
        closing(training_loader(config, data, policy)) as loader,
        closing(validation_loader(config, data)) as val_loader,
    ):
        yield Session(
            trainer=Trainer(model, training, device=device, seed=config.seed, activations=config.activations),
            loader=loader,
            policy=policy,
            clocks=Clocks(synchronizer(device)),
            validation=ValidationBatches(val_loader, training.eval_image_size),
            session_bytes=lambda: data.storage.bytes_read - index_bytes,
        )


def _batch_shapes(num_samples: int, batch_size: int, size_px: int) -> list[tuple[int, int]]:
    # A full batch and what is left for the last one of an epoch.
    sizes = {min(batch_size, num_samples), num_samples % batch_size} - {0}
    return [(size, size_px) for size in sorted(sizes)]
