"""A training run from configuration to files: skipped if finished, continued if interrupted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.describe import network_label, scan_label, storage_label
from pcr_exp.config.mixture import MixtureConfig
from pcr_exp.policies.policy import describe_measure
from pcr_exp.policies.schedule import ScheduleConfig
from pcr_exp.records.reader import RecordSet
from pcr_exp.runs.bars import training_bar
from pcr_exp.runs.data import (
    RunData,
    class_counts,
    dataset_facts,
    images_key_of,
    open_data,
    page_cache_restored,
    prepare_data,
    settle_page_cache,
)
from pcr_exp.runs.directory import RunDirectory, claim, log_to, write_layers
from pcr_exp.runs.follow import Assignment, follow, saved_states, share_of_state
from pcr_exp.runs.manifest import (
    Manifest,
    begin_at,
    describe_group,
    describe_records,
    end,
    new_manifest,
    write_manifest,
)
from pcr_exp.runs.quality import training_quality
from pcr_exp.runs.rows import Row, RowFile
from pcr_exp.runs.session import Session, open_session, set_up_torch
from pcr_exp.runs.tracking import Tracker, open_tracker
from pcr_exp.system import MIB
from pcr_exp.system.lock import hold_host
from pcr_exp.system.process import StopRequest, handled_signals
from pcr_exp.training.clocks import open_device
from pcr_exp.training.distributed.open import check_exchange
from pcr_exp.training.distributed.processes import Processes, join_processes, named_process_death
from pcr_exp.training.models import check_name
from pcr_exp.training.task import open_task, primary_metric_named
from pcr_exp.training.values import num_named_classes
from pcr_exp.training.weights import load_checkpoint, save_checkpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of `run_training`; any other outcome is an exception."""

    run_id: str
    folder: Path
    status: Literal["finished", "skipped"]


DrawRun = Callable[[Path], Mapping[str, Path]]
"""Draws a run's figures from its directory and returns their image files by name."""


def run_training(
    config: TrainConfig,
    *,
    progress: bool = True,
    draw: DrawRun | None = None,
    claimed: Callable[[Path], None] | None = None,
) -> RunOutcome:
    """Train as configured, in `<runs_root>/<run_id>`.

    A finished run is skipped. An interrupted or failed one continues from its checkpoint, and ends with the
    same rows as an uninterrupted run (clocks, rates and bytes_read excepted). With several processes, all of
    them call this and train; only the first writes files.

    Args:
        config: The whole configuration.
        progress: Show bars on stderr.
        draw: Called after training; its figures go to the tracker.
        claimed: Called with the run's directory as soon as this process holds it.

    Raises:
        PcrExpError: the message gives the reason. A run that had begun then has status `failed`.
        KeyboardInterrupt, SystemExit: on SIGINT, SIGTERM, after a checkpoint; the status is `interrupted`.
    """
    # Check before the directory is created: a typo must not leave one behind.
    check_exchange(config.gradients, config.network, config.world_size, config.num_slots)
    processes = join_processes(config.world_size)
    device = open_device(config.training.device)
    check_name(config.model)
    if not processes.first:
        assignment = follow(config, device, processes)
        folder = assignment.folder
        return RunOutcome(folder.name, folder, "skipped" if assignment.finished else "finished")
    # The run's id depends on the images, so prepare them first. Other processes wait for `Assignment`.
    prepare_data(config, progress=progress)
    images = images_key_of(config)
    with claim(config, images) as directory, _own_machine(config, directory):
        name, status = directory.path.name, directory.status
        if claimed is not None:
            claimed(directory.path)
        assignment = processes.from_first(lambda: Assignment.of(config, directory))
        if assignment.finished:
            log.info("%s is finished: skipped", directory.path)
            return RunOutcome(name, directory.path, "skipped")
        with log_to(directory.log_path), handled_signals() as stop:
            log.info("%s run %s on %s", "new" if status == "new" else f"continuing {status}", name, device)
            if directory.dead_holder is not None:
                log.warning("%s died while holding this run; taking it over", directory.dead_holder)
            _warn_of_late_milestones(config)
            manifest = new_manifest(config, device, directory.manifest(), name=name, images=images)
            with _recorded(directory, manifest, stop), named_process_death(processes):
                set_up_torch(config, device, processes)
                data = open_data(config, bucket=assignment.bucket)
                _train(
                    config, device, directory, data, manifest, stop, processes, progress=progress, draw=draw
                )
            log.info("finished: %s", directory.path)
    return RunOutcome(name, directory.path, "finished")


@contextmanager
def _own_machine(config: TrainConfig, directory: RunDirectory) -> Iterator[None]:
    # Wait before the run's session begins, so that waiting is not part of it.
    if not config.training.exclusive or directory.status == "finished":
        yield
        return

    def waits_for(holder: str) -> None:
        log.warning(
            "training.exclusive=true: waiting for %s, which has exclusive use of this machine. Set "
            "training.exclusive=false to start without waiting.",
            holder,
        )

    with hold_host(waits_for):
        yield


def _train(
    config: TrainConfig,
    device: torch.device,
    directory: RunDirectory,
    data: RunData,
    manifest: Manifest,
    stop: StopRequest,
    processes: Processes,
    *,
    progress: bool,
    draw: DrawRun | None,
) -> None:
    describe_records(manifest, data.train.index, data.tune.index, data.val.index)
    evaluated: RecordSet = getattr(data, config.training.eval_split)
    label = config.dataset.label
    task = open_task(config.task, data.train.index.classes[label], config.training.label_smoothing)
    manifest.num_classes = task.num_outputs
    manifest.majority_share = task.majority_share_of(class_counts(evaluated, label))
    _warn_of_chance_level(manifest)
    with page_cache_restored(config, data.train, data.train.index.num_samples):
        facts = dataset_facts(config.dataset, config.records, config.scan.encoding)
        if facts is not None:
            manifest.dataset_facts = replace(facts, num_classes=num_named_classes(task, facts.num_classes))
    if isinstance(config.dataset, MixtureConfig):  # its images have no common scan group
        manifest.mean_prefix_bytes = None
    elif not manifest.quality:
        manifest.quality = training_quality(config, progress=progress)
    manifest.cached_share = settle_page_cache(config, data)
    write_manifest(directory.manifest_path, manifest)
    epochs = config.training.epochs
    with (
        open_session(config, data, device, processes) as session,
        RowFile(directory.rows_path, _restore(session, directory), session.columns) as rows,
        _tracked(config, directory) as tracker,
        training_bar(
            epochs=epochs,
            total_steps=session.total_steps,
            step=session.progress.step,
            shown=progress,
            headline=primary_metric_named(manifest.headline),
        ) as bar,
    ):
        manifest.columns = session.declared
        begin_at(manifest, session.progress.step)
        write_manifest(directory.manifest_path, manifest)
        held_mib = session.loader.max_held_bytes() / MIB
        log.info("memory: up to %.3g MiB of record prefixes, including read-ahead", held_mib)

        def checkpoint() -> None:
            rows.sync()
            own, *others = processes.gather(session.state_dict())
            state = {**own, "others": others, "num_rows": rows.num_rows}
            if session.predictions is not None:
                # Write these first: a run that is killed after its last checkpoint gets no other chance to.
                session.predictions.write(directory.predictions_path, directory.path.name)
            save_checkpoint(directory.checkpoint_path, state)
            write_layers(directory.layers_path, session.trainer.activations.history)

        def should_stop() -> bool:
            return stop.agree(processes.any(stop.requested))

        # Several processes must stop together, so they stop only after an update.
        waiting = stop.waiting if processes.world_size == 1 else nullcontext
        training = session.rows(checkpoint=checkpoint, should_stop=should_stop, waiting=waiting)
        with stop.graceful(), closing(training) as stream:
            for row in stream:
                rows.append(row)
                tracker.log(row)
                bar.update(row)
                if row["kind"] == "policy":
                    log.info("epoch %d: scan group %d by %s %s", *_decided(row))
                    describe_group(manifest, data.train.index, row["group"])
                    write_manifest(directory.manifest_path, manifest)
                is_full = row.get("eval_group") == "full"
                if row["kind"] == "eval" and (is_full or config.scan.encoding != "baseline"):
                    _log_eval(row, epochs, manifest.headline)
                if is_full:
                    keys = (f"val_{manifest.headline}", "val_loss", "train_s", "wait_s")
                    tracker.summary({key: row[key] for key in keys})
        if draw is not None:  # takes seconds and has nothing to save: an interrupt acts at once
            rows.sync()
            for name, path in draw(directory.path).items():
                tracker.figure(name, path)


def _warn_of_chance_level(manifest: Manifest) -> None:
    headline, target = primary_metric_named(manifest.headline), manifest.target
    guessed = headline.guessed(manifest.majority_share, manifest.num_classes)
    if guessed is not None and target <= guessed:
        log.warning(
            "dataset.targets.%s=%g: an untrained model reaches a %s of %.1f%% (by always predicting the most "
            "frequent class, or by guessing), so tables show no time to this target; wanted a higher one",
            *(headline.name, target, headline.words, 100 * guessed),
        )


def _warn_of_late_milestones(config: TrainConfig) -> None:
    # Not refused: a schedule's defaults suit longer runs.
    training = config.training
    milestones = {
        "scan.milestones": config.scan.milestones if isinstance(config.scan, ScheduleConfig) else [],
        "training.input_milestones": training.input_milestones,
        "training.lr_milestones": training.lr_milestones if training.schedule == "step" else [],
    }
    for key, given in milestones.items():
        if late := [epoch for epoch in given if epoch >= training.epochs]:
            log.warning(
                "%s=%s: training.epochs=%d ends before anything changes at %s; wanted milestones below %d, "
                "or more epochs",
                *(key, list(given), training.epochs, late, training.epochs),
            )


def _restore(session: Session, directory: RunDirectory) -> int:
    # Return the number of rows at the checkpoint.
    if not directory.checkpoint_path.exists():
        return 0
    state = load_checkpoint(directory.checkpoint_path)
    session.load_state_dict(share_of_state(saved_states(state), 0, session.processes.world_size))
    log.info("continuing from the checkpoint after step %d", session.progress.step)
    return state["num_rows"]


def _decided(row: Row) -> tuple[int, int, str, dict[str, float]]:
    return row["epoch"], row["group"], describe_measure(row["measure"]), row["scores"]


def _log_eval(row: Row, epochs: int, headline: str) -> None:
    ways = {
        "full": "read in full",
        "same": f"read at group {row['scan_group']}",
        "renewed": "BatchNorm renewed, read in full",
    }
    read = ways[row["eval_group"]]
    log.info(
        "epoch %d/%d, %s: val_%s %.4f, val_loss %.4f, train_loss %.4f; so far train %.1f s, wait %.1f s",
        *(row["epoch"], epochs, read),
        *(headline, row[f"val_{headline}"], row["val_loss"], row["train_loss"]),
        *(row["train_s"], row["wait_s"]),
    )


@contextmanager
def _tracked(config: TrainConfig, directory: RunDirectory) -> Iterator[Tracker]:
    labels = {"storage": storage_label(config.storage), "scan": scan_label(config.scan, config.records)}
    described = {**asdict(config), "labels": {**labels, "network": network_label(config.network)}}
    tracker = open_tracker(config.tracking, directory.path.name, directory.path, described)
    try:
        yield tracker
    except BaseException:
        tracker.finish(failed=True)
        raise
    tracker.finish()


@contextmanager
def _recorded(directory: RunDirectory, manifest: Manifest, stop: StopRequest) -> Iterator[None]:
    # Set the manifest's status to `running` within the block, and then to the outcome.
    path = directory.manifest_path
    write_manifest(path, manifest)
    try:
        yield
    except BaseException as error:
        interrupted = stop.requested or isinstance(error, KeyboardInterrupt)
        if interrupted:
            end(manifest, "interrupted")
            log.warning("interrupted; run the same command again to continue")
        else:
            end(manifest, "failed", f"{type(error).__name__}: {error}")
            log.error("failed: %s", manifest.error, exc_info=error)
        write_manifest(path, manifest)
        if not isinstance(error, KeyboardInterrupt | SystemExit):
            stop.raise_if_requested()  # a worker that died of the same Ctrl-C is not a failure
        raise
    end(manifest, "finished")
    write_manifest(path, manifest)
