"""One session of a run, from its start or a checkpoint to its end or an interruption."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.describe import group_number
from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.errors import ConfigError
from pcr_exp.loading.echo.stage import stage_columns
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.mixed_records import MixedRecords
from pcr_exp.loading.order import open_share
from pcr_exp.policies.consensus import open_consensus
from pcr_exp.policies.policy import PolicyInputs, ScanPolicy, declared_columns, require_tuning
from pcr_exp.records.reader import RecordSet
from pcr_exp.runs.data import (
    RunData,
    epoch_mixture,
    open_run_policy,
    training_loader,
    validation_loader,
    with_cache,
)
from pcr_exp.runs.predictions import Predictions, open_predictions
from pcr_exp.runs.rows import team_row
from pcr_exp.runs.validation import Probes, Validation, ValidationBatches, num_renewing
from pcr_exp.storage.protocol import Counts
from pcr_exp.system.columns import Column
from pcr_exp.system.machine import OthersCpu
from pcr_exp.training.clocks import Clocks, StopAfter, cpu_threads, synchronizer
from pcr_exp.training.columns import (
    bytes_column,
    images_column,
    source_columns,
    validated_column,
    with_declared,
)
from pcr_exp.training.distributed.open import open_exchange
from pcr_exp.training.distributed.processes import Processes, model_of_first
from pcr_exp.training.evaluate import evaluate, has_running_statistics
from pcr_exp.training.inputs import normalization_of
from pcr_exp.training.loop import Loop, Stopping
from pcr_exp.training.models import check_model, open_model
from pcr_exp.training.report import Progress, Reporter, Row
from pcr_exp.training.task import Task, open_task
from pcr_exp.training.trainer import Trainer

COUNTED = ("bytes_read", "num_requests", "num_retries", "cached_bytes")
"""Row columns, and fields of `Counts`, that accumulate over sessions."""


def check_precision(config: TrainConfig, trainer: Trainer) -> None:
    """Raise ConfigError if gradients are encoded while loss scaling changes their scale."""
    gradients = config.gradients
    if trainer.scaler.is_enabled() and (gradients.name != "none" or gradients.mode == "server"):
        raise ConfigError(
            f"training.amp=true with gradients={gradients.name} (mode {gradients.mode}): this GPU has no "
            "bfloat16, so the loss scale changes between steps, and values that a codec carries over from "
            "one step would have the wrong scale in the next. Use training.amp=false."
        )


def check_bounds(config: TrainConfig) -> None:
    """Raise ConfigError if bounds or errors depend on an optimizer that takes no steps."""
    follows = config.activations.follows_momentum
    if follows and config.world_size > 1 and config.gradients.mode == "server":
        raise ConfigError(
            f"activations={config.activations.name} with gradients.mode=server: it follows the optimizer's "
            "momentum, but only the first process updates an optimizer. Use gradients.mode=ddp, or "
            "activations=error_bounded activations.bounds=fixed."
        )


@dataclass(slots=True)
class Session:
    """All parts of a run; everything that a checkpoint saves is reachable from here."""

    trainer: Trainer
    loader: RecordLoader
    policy: ScanPolicy
    clocks: Clocks
    validation: Validation
    probes: Probes
    session_counts: Callable[[], Counts]
    """Returns the reads and bytes of training records by this process in this session."""
    echo: EchoConfig
    num_workers: int
    """Decoding processes of the loader."""
    encoding: str = "pcr"
    """Encoding of the training records."""
    predictions: Predictions | None = None
    """Predictions for every image in the reported evaluations; only in the first process."""
    processes: Processes = field(default_factory=Processes)
    others_cpu: OthersCpu | None = None
    """Measures the CPU time that others take from the run on this host; only in the first process."""
    earlier_counts: Counts = field(default_factory=Counts)
    """Like `session_counts`, for earlier sessions."""
    earlier_probe_bytes: int = 0
    """Bytes that a scan policy's probes read in earlier sessions."""
    progress: Progress = field(default_factory=Progress)
    validated: dict[str, int] = field(default_factory=dict)
    """Number of evaluated images by mixture source; empty for one dataset."""

    @property
    def declared(self) -> list[Column]:
        """Columns in addition to the usual ones: those of the policy and of a mixture's sources."""
        return [*declared_columns(self.policy), *source_columns(self.validated)]

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns that the rows may have. Raises ConfigError if the policy declares an existing one."""
        return with_declared(self.declared)

    @property
    def total_steps(self) -> int:
        """Number of updates in the whole run."""
        return self.trainer.config.epochs * self.loader.num_batches

    def bytes_read(self) -> int:
        """Return the bytes of training records delivered to this process since the run began."""
        return self._counted()["bytes_read"]

    def _counted(self) -> dict[str, int]:
        """Return the COUNTED values of this process since the run began."""
        counts = self.earlier_counts + self.session_counts()
        return {name: getattr(counts, name) for name in COUNTED}

    def rows(
        self,
        *,
        checkpoint: Callable[[], None],
        should_stop: Callable[[], bool],
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> Generator[Row, None, None]:
        """Train, and yield rows combined over all processes; see `pcr_exp.training.loop.Loop`.

        Every process calls this, consumes every row, and stops at the same update as the others.
        """
        loop = Loop(
            trainer=self.trainer,
            loader=self.loader,
            policy=self.policy,
            reporter=Reporter(self.progress, self.clocks, self.bytes_read, self.measure),
            evaluate=self._global_scores,
            probe=lambda wanted: self.probes.run(wanted, self.progress),
            checkpoint=checkpoint,
            stopping=Stopping(should_stop=should_stop, waiting=waiting, out_of_time=self._out_of_time()),
        )
        if self.others_cpu is not None:
            self.others_cpu.begin()
        with closing(loop.rows()) as rows:
            for row in rows:
                yield team_row(self._beside_others(row), self.trainer.exchange, self.processes, self.columns)

    def _out_of_time(self) -> Callable[[float], bool]:
        stop_after = StopAfter(self.trainer.config.stop_after_s)
        if stop_after.limit_s is None:
            return stop_after.passed
        return lambda seconds: self.processes.any(stop_after.passed(seconds))

    def _beside_others(self, row: Row) -> Row:
        if row["kind"] != "train" or self.others_cpu is None:
            return row
        return {**row, "others_cpu_share": self.others_cpu.share()}

    def measure(self, row: Mapping[str, Any]) -> dict[str, float | None]:
        """Return columns for memory saved for backward, stage times around the echo, and storage counts.

        Stage times cover only this session. The scan group is replaced by the reported number, since baseline
        records are stored as one group that is not group 1.
        """
        probe_bytes = self.progress.probe_bytes - self.earlier_probe_bytes
        stages = stage_columns(
            self.echo,
            self.loader.stats,
            num_workers=self.num_workers,
            bytes_read=self.session_counts().bytes_read - probe_bytes,
            counters=row,
        )
        group = {"scan_group": group_number(self.encoding, row["scan_group"])}
        return group | self.trainer.saved_bytes.columns() | stages | self._counted()

    def _global_scores(self, scan_group: int) -> dict[str, dict[str, Any]]:
        with self.trainer.exchange.global_weights(), model_of_first(self.processes, self.trainer.model):
            found = self.validation.evaluate(self.trainer, scan_group)
        score = f"val_{self.trainer.task.headline.name}"
        for eval_group, evaluation in found.items():
            if self.predictions is not None and evaluation.per_image is not None:
                self.predictions.keep(
                    self.progress.epoch, eval_group, evaluation.scores[score], **evaluation.per_image
                )
        sources = {validated_column(name): num for name, num in self.validated.items()}
        return {eval_group: evaluation.scores | sources for eval_group, evaluation in found.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return everything that training changes in this process."""
        return {
            **self.trainer.state_dict(),
            "progress": self.progress.state_dict(),
            "policy": self.policy.state_dict(),
            "clocks": self.clocks.state_dict(),
            **self._counted(),
            "predictions": None if self.predictions is None else self.predictions.state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state`; call this before `rows`."""
        self.trainer.load_state_dict(state)
        self.progress = Progress.from_state(state["progress"])
        self.policy.load_state_dict(state["policy"])
        self.clocks.load_state_dict(state["clocks"])
        self.earlier_counts = Counts(**{name: state[name] for name in COUNTED})
        self.earlier_probe_bytes = self.progress.probe_bytes
        if self.predictions is not None and state.get("predictions") is not None:
            self.predictions.load_state(state["predictions"])


@contextmanager
def open_session(
    config: TrainConfig, data: RunData, device: torch.device, processes: Processes
) -> Iterator[Session]:
    """Assemble a run at its beginning; its loaders are closed at the end of the block.

    Raises:
        ConfigError: the model does not exist, does not accept the batches that it would get, or does not suit
            `activations` or `eval_groups`; the scan policy needs tuning images and there are none; or the
            gradient exchange does not suit the other settings.
    """
    torch.manual_seed(config.seed)  # for the model's initial weights
    task = open_task(
        config.task, data.train.index.classes[config.dataset.label], config.training.label_smoothing
    )
    model = open_model(config.model, task.num_outputs)
    eval_split, eval_px = config.training.eval_split, config.training.eval_image_size
    splits = sorted({eval_split, *(["tune"] if config.scan.uses_tune_split else [])})
    _check_model(config, data, model, processes, splits)
    require_tuning(config.scan, data.tune.index.num_samples)
    consensus = open_consensus(torch.device("cpu"))  # processes communicate there, whatever device they use
    inputs = PolicyInputs(config.seed, consensus, data.train.index, data.train.storage.counts)
    policy = open_run_policy(config, data, inputs)
    data = with_cache(config, data, policy)
    counts = data.train.storage.counts
    of_index = counts()
    trainer = _open_trainer(config, task, model, device, processes)
    with closing(training_loader(config, data, policy, processes)) as loader, ExitStack() as others:
        loaders = {
            split: others.enter_context(closing(validation_loader(config, data, split))) for split in splits
        }
        tuning = ValidationBatches(loaders["tune"], eval_px) if "tune" in loaders else ()
        full = ValidationBatches(loaders[eval_split], eval_px, processes=processes)
        validated = _images_of_sources(getattr(data, eval_split))
        counted = [column(name) for name in validated for column in (images_column, bytes_column)]
        yield Session(
            trainer=trainer,
            loader=loader,
            policy=policy,
            clocks=Clocks(synchronizer(device)),
            validation=Validation(config, data, full, processes),
            probes=Probes(
                config,
                data,
                trainer,
                processes,
                consensus,
                tune_loss=lambda: float(
                    evaluate(trainer.model, trainer.forward, trainer.task, tuning)["val_loss"]
                ),
                steps_per_epoch=loader.num_batches,
            ),
            session_counts=lambda: counts() - of_index,
            echo=config.echo,
            num_workers=config.loader.num_workers,
            encoding=config.scan.encoding,
            predictions=open_predictions(data, config) if processes.first else None,
            processes=processes,
            others_cpu=_open_others_cpu(processes),
            progress=Progress(by_source=dict.fromkeys(counted, 0)),
            validated=validated,
        )


def _images_of_sources(records: RecordSet) -> dict[str, int]:
    """Return the number of images in a split by mixture source; empty for one dataset."""
    if not isinstance(records, MixedRecords):
        return {}
    return {name: source.records.index.num_samples for name, source in records.sources.items()}


def _check_model(
    config: TrainConfig, data: RunData, model: nn.Module, processes: Processes, splits: Sequence[str]
) -> None:
    """Raise ConfigError unless the model accepts the batches that it would get, and `eval_groups` suit it."""
    training = config.training
    renews = "renewed" in training.eval_groups
    if renews and not has_running_statistics(model):
        raise ConfigError(
            f"training.eval_groups={training.eval_groups}: wanted no `renewed` with "
            f"model={config.model.name}, which has no BatchNorm layers to renew."
        )
    share = open_share(
        processes.rank,
        processes.world_size,
        batch_size=training.batch_size,
        global_batch_size=training.global_batch_size,
    )
    mixture = epoch_mixture(config, data)
    num_used = data.train.index.num_samples if mixture is None else len(mixture)
    num_fresh = share.samples_per_slot(num_used)
    # Probes see no echo, and statistics are renewed on the images of all processes: other last batches.
    num_probed = config.scan.num_probed(num_used, num_fresh, training.batch_size)
    train_batches = [
        shape
        for size_px in sorted({*(training.input_sizes or [training.image_size])})
        for number in (config.echo.num_samples(num_fresh), num_probed)
        for shape in _batch_shapes(number, training.batch_size, size_px)
    ]
    if renews:
        num_images = num_renewing(num_used, training.batch_size)
        train_batches += _batch_shapes(num_images, training.batch_size, training.image_size)
    numbers = [{"val": data.val, "tune": data.tune}[split].index.num_samples for split in splits]
    check_model(
        model,
        config.model.name,
        train_batches=train_batches,
        eval_batches=[
            shape
            for number in numbers
            for shape in _batch_shapes(number, training.batch_size, training.eval_image_size)
        ],
    )


def _open_trainer(
    config: TrainConfig, task: Task, model: nn.Module, device: torch.device, processes: Processes
) -> Trainer:
    check_bounds(config)
    trainer = Trainer(
        model,
        config.training,
        device=device,
        seed=config.seed,
        activations=config.activations,
        exchange=open_exchange(config.gradients, config.network, processes, config.seed),
        normalization=normalization_of(config.model),
        task=task,
    )
    check_precision(config, trainer)
    return trainer


def _open_others_cpu(processes: Processes) -> OthersCpu | None:
    here = socket.gethostname()
    places = processes.gather((here, os.getpid()))
    return OthersCpu([pid for host, pid in places if host == here]) if processes.first else None


def set_up_torch(config: TrainConfig, device: torch.device, processes: Processes) -> None:
    """Set torch's number of threads and its choice of convolutions for this process."""
    threads = cpu_threads(device, config.loader.num_workers, processes.per_host)
    num_threads = config.training.num_threads or threads
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    # Batches have few shapes, so searching for the fastest convolution pays off.
    torch.backends.cudnn.benchmark = device.type == "cuda"


def _batch_shapes(num_samples: int, batch_size: int, size_px: int) -> list[tuple[int, int]]:
    # A full batch, and the remainder for the last batch of an epoch.
    sizes = {min(batch_size, num_samples), num_samples % batch_size} - {0}
    return [(size, size_px) for size in sorted(sizes)]
