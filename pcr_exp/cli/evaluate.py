"""Evaluate trained networks at scan groups and decode modes, and draw what they lose."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import torch

from pcr_exp.analysis.evaluation import TABLE_FILE, check_primary_metric, levels_markdown, write_evaluation
from pcr_exp.cli.dry_run import NOT_KNOWN, Planned, index_of, num_in_files, plan_forward
from pcr_exp.cli.terminal import show, track_files
from pcr_exp.config.check import require
from pcr_exp.config.crops import crops_of
from pcr_exp.config.measuring import ALL, IMAGE_SIZE, EvaluateConfig
from pcr_exp.config.mixture import MixtureConfig
from pcr_exp.datasets.sample import Sample, open_images
from pcr_exp.errors import ConfigError, DatasetError, ImageError
from pcr_exp.images.codec import find_codec
from pcr_exp.loading.transform import EvalTransform, eval_transform
from pcr_exp.measuring.evaluated_images import file_batches, record_batches
from pcr_exp.measuring.evaluation import (
    Level,
    LevelBatch,
    Trained,
    levels_of,
    outputs_of_classes,
    score_images,
)
from pcr_exp.records.dataset_facts import (
    NUM_MEASURED,
    DatasetFacts,
    describe_dataset,
    facts_of,
    read_image_file,
)
from pcr_exp.records.fingerprint import images_key, sample_bytes
from pcr_exp.records.prepare import ensure_records
from pcr_exp.runs.checkpoints import FinishedRun, check_asked, find_runs, open_published, open_runs
from pcr_exp.runs.data import dataset_facts, open_unthrottled
from pcr_exp.runs.study_folder import claim_results
from pcr_exp.system.progress import counting_bar
from pcr_exp.system.words import counted
from pcr_exp.training.clocks import open_device
from pcr_exp.training.task import AUC, open_task, primary_metric_of
from pcr_exp.training.values import MEAN_AP, R2

log = logging.getLogger(__name__)


def evaluate(config: EvaluateConfig) -> str:
    """Score every image of a split at every level. Return "finished"."""
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    device = open_device(config.device)
    headline = primary_metric_of(config.task)
    check_primary_metric(headline.name)
    wanted = f"null with task={config.task.name}, whose outputs do not stand for one class each"
    require(headline not in (MEAN_AP, R2) or config.classes is None, "classes", config.classes, wanted)
    runs = find_runs(config.runs) if config.runs else []
    check_asked(config, runs)
    if config.split == ALL and any(run.dataset_name == config.dataset.name for run in runs):
        log.warning("split=all: the scored images include those that these runs were trained on")
    image_size = runs[0].image_size if runs else config.image_size or IMAGE_SIZE
    crops = crops_of(config.dataset.augment, config.loader, image_size)
    levels = levels_of(config.groups, config.decodes, config.records.scans.name)
    images = (images_in_files if config.split == ALL else images_in_records)(
        config, levels, eval_transform(crops)
    )
    task = open_task(config.task, images.classes)  # rejects classes that do not suit it
    outputs, num_outputs = outputs_of(config, images.classes)
    if headline in (MEAN_AP, R2):
        num_outputs = task.num_outputs
    trained = open_trained(config, runs, num_outputs, device)
    ids = [run.name for run in runs]
    with claim_results(config, folder_name_parts(config, ids), images.fingerprint, of_runs=ids) as out:
        with counting_bar("images") as tell:
            scores = score_images(
                trained,
                images.batches,
                outputs=outputs,
                device=device,
                margins=headline is AUC,
                task=task,
                progress=lambda done: tell(done, images.num * len(levels)),
            )
        settings = {
            "dataset": images.name,
            "label": config.dataset.label,
            "split": config.split,
            "fingerprint": images.fingerprint,
            "image_size_px": image_size,
            "antialias": crops.antialias,
            "headline": headline.name,
            "model": runs[0].model_name if runs else config.model.name,
            "num_threads": torch.get_num_threads(),
        }
        files = write_evaluation(out, scores, settings, device)
    track_files(config.tracking, f"evaluate-{out.name}", out, asdict(config), files)
    show(files, levels_markdown(pd.read_csv(out / TABLE_FILE), headline.name, images.name, config.split))
    return "finished"


def folder_name_parts(config: EvaluateConfig, runs: Sequence[str]) -> list[str]:
    """Return the first words of the name of the results' folder."""
    networks = config.model.name if not runs else "1_run" if len(runs) == 1 else f"{len(runs)}_runs"
    return [config.dataset.name, config.dataset.label, config.split, networks]


@dataclass(frozen=True, slots=True)
class EvaluatedImages:
    """The images to score."""

    name: str
    """Description from measured facts, such as `ImageNet, ten classes, 224 px, q75`."""
    num: int
    """Number of images, each scored at every level; fewer are scored if some are left out."""
    classes: list[str]
    """Names of the label's classes."""
    fingerprint: str
    batches: Iterator[LevelBatch]


def images_in_records(
    config: EvaluateConfig, levels: Sequence[Level], transform: EvalTransform
) -> EvaluatedImages:
    """Open a split's images from records, which are made if they are missing.

    Raises:
        ConfigError: the records have no such label, or the split has no images.
        PcrExpError: the records cannot be made or opened.
    """
    try:
        if not isinstance(config.dataset, MixtureConfig):
            with counting_bar("records") as tell:
                ensure_records(config.dataset, config.records, progress=tell)
    except DatasetError as error:
        raise DatasetError(
            f"{error} To score every image file directly, without a training split or records, use "
            f"split={ALL}."
        ) from error
    records = {
        encoding: open_unthrottled(config.dataset, config.records, config.split, encoding)
        for encoding in ("baseline", "pcr")
    }
    index, label = records["baseline"].index, config.dataset.label
    if not index.num_samples:
        raise ConfigError(
            f"split={config.split}: this split of {index.dataset} has no images. Choose another."
        )
    if label not in index.classes:
        raise ConfigError(
            f"dataset.label={label!r}: the records have the labels {', '.join(sorted(index.classes))}."
        )
    batches = record_batches(
        records, levels, config.loader, transform, label=label, batch_size=config.batch_size
    )
    name = describe_dataset(config.dataset.name, dataset_facts(config.dataset, config.records))
    return EvaluatedImages(name, index.num_samples, list(index.classes[label]), index.fingerprint, batches)


def images_in_files(
    config: EvaluateConfig, levels: Sequence[Level], transform: EvalTransform
) -> EvaluatedImages:
    """Open the first `dataset.max_val_images` images of the dataset (None: all), each from its file.

    Raises:
        ConfigError, DatasetError: as `open_images` raises them.
        RecordError: a library needed to split them into scans is not installed.
    """
    found, label = open_images(config.dataset), config.dataset.label
    samples = found.samples[: config.dataset.max_val_images]
    codec = find_codec(config.records.codec_id, "records.codec")
    codec.check_installed()
    batches = file_batches(
        samples,
        levels,
        codec,
        transform,
        label=label,
        batch_size=config.batch_size,
        max_pixels=config.records.max_pixels,
        on_error=config.records.on_error,
        num_threads=config.records.num_workers,
    )
    key = images_key([(sample, sample_bytes(sample)) for sample in samples])
    name = describe_dataset(config.dataset.name, _facts_of_files(samples, label))
    return EvaluatedImages(name, len(samples), found.classes[label], key, batches)


def _facts_of_files(samples: Sequence[Sample], label: str) -> DatasetFacts:
    measured = []
    for sample in samples[:NUM_MEASURED]:
        with suppress(ImageError, OSError):  # an unreadable image is reported when it is scored
            measured.append(read_image_file(sample.path.read_bytes()))
    num_classes = len({sample.labels[label] for sample in samples})
    return facts_of(measured, num_images=len(samples), num_classes=num_classes)


def outputs_of(config: EvaluateConfig, names: Sequence[str]) -> tuple[torch.Tensor, int]:
    """Return which of the networks' outputs stands for each class, and the number of outputs."""
    if config.classes is None:
        return torch.arange(len(names)), len(names)
    path = Path(config.classes)
    if not path.is_file():
        raise ConfigError(f"classes={config.classes}: no such file; wanted a file with one class per line.")
    lines = path.read_text(encoding="utf-8").splitlines()
    return outputs_of_classes(names, lines, config.classes), len(lines)


def open_trained(
    config: EvaluateConfig, runs: Sequence[FinishedRun], num_outputs: int, device: torch.device
) -> list[Trained]:
    """Open the networks, on the device and in eval mode."""
    trained = open_runs(runs, num_outputs) if runs else [open_published(config.model, num_outputs)]
    for each in trained:
        each.network.eval().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return trained


def plan(config: EvaluateConfig) -> Planned:
    """Plan the scoring of images x levels x networks."""
    levels = 1 + len(config.groups) * len(config.decodes)
    facts = [f"{levels} levels of {config.dataset.name}, into {config.place}"]
    if config.split == ALL:
        facts.append("images are read from their files, and no records are made")
        num_images = num_in_files(config.dataset, None)
    else:
        index = index_of(config.dataset, config.records, config.split, "baseline")
        facts += [] if index else ["records are not made yet"]
        num_images = index.num_samples if index else num_in_files(config.dataset, [config.split])
    if config.runs:
        folders = counted(len(config.runs), "folder")
        return Planned([*facts, f"{counted(num_images, 'image')}, runs of {folders}", NOT_KNOWN])
    facts.append(counted(num_images, "image"))
    return plan_forward(facts, config.model, num_images * levels, config.image_size or IMAGE_SIZE)
