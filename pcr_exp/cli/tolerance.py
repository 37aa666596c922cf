"""Measure which scan groups a task tolerates on frozen features, draw the results and print the answer."""

import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from pcr_exp.analysis.tolerance import Facts, Measured
from pcr_exp.analysis.tolerance_page import write_tolerance
from pcr_exp.cli.dry_run import Planned, num_in_files, plan_forward
from pcr_exp.cli.explore import explore_task
from pcr_exp.cli.terminal import show, track_files
from pcr_exp.config.crops import CropSettings
from pcr_exp.config.measuring import ToleranceConfig
from pcr_exp.datasets.sample import Dataset, Sample, open_dataset
from pcr_exp.errors import DatasetError
from pcr_exp.measuring.tolerance.answer import EQUAL_CLASSES, majority_share_of, num_classes
from pcr_exp.measuring.tolerance.classifier import cross_validate
from pcr_exp.measuring.tolerance.features import Features, extract_features, open_backbone
from pcr_exp.measuring.tolerance.images import ImageFiles, choose_samples, similarity_of_groups
from pcr_exp.records.dataset_facts import describe_dataset, facts_of_files
from pcr_exp.records.fingerprint import dataset_images_key
from pcr_exp.runs.study_folder import claim_results
from pcr_exp.system.progress import counting_bar
from pcr_exp.system.words import counted
from pcr_exp.training.clocks import open_device
from pcr_exp.training.task import open_task, primary_metric_of
from pcr_exp.training.values import num_named_classes


def tolerance(config: ToleranceConfig) -> str:
    """Measure one label of one dataset and print the answer. Return "finished"."""
    torch.set_num_threads(1)  # for each of several threads
    started_s = time.monotonic()
    dataset = open_dataset(config.dataset)
    with claim_results(config, folder_name_parts(config), dataset_images_key(dataset)) as out:
        measured, samples = measure(config, dataset)
        notes = {
            "wall_s": round(time.monotonic() - started_s, 1),
            "cpu_s": round(time.process_time(), 1),
            "num_threads": config.num_workers,
        }
        files = write_tolerance(out, measured, notes)
        if config.num_explored_images:
            explore_task(config, crops_of_task(config), dataset, measured, samples, out / "explore.html")
    track_files(config.tracking, f"tolerance-{out.name}", out, asdict(config), files)
    show(files)
    return "finished"


def folder_name_parts(config: ToleranceConfig) -> list[str]:
    """Return the first words of the name of the results' folder."""
    px = f"{config.image_size}px"
    return [config.dataset.name, config.dataset.label, config.model.name, px, config.decode]


def measure(config: ToleranceConfig, dataset: Dataset) -> tuple[Measured, list[Sample]]:
    """Measure features, then predictions, each with a bar on stderr. Also return the usable images.

    Raises:
        DatasetError: there are no images, or all are of one class.
        PcrExpError: they cannot be measured.
    """
    label = config.dataset.label
    samples = choose_samples(dataset, config.splits, config.max_images)
    if not samples:
        raise DatasetError(f"splits={config.splits}: {config.dataset.name} has no image there. Add a split.")
    images = ImageFiles(
        samples,
        config.groups,
        crops_of_task(config),
        max_pixels=config.max_pixels,
        script=config.records.scans.script,
    )
    found = features_of(config, images)
    compared = found.positions[: config.num_similarity_images].tolist()
    similarity = similarity_of_groups(images, compared, config.num_workers) if compared else None
    kept = [samples[position] for position in found.positions]
    indexes = torch.tensor([sample.labels[label] for sample in kept], dtype=torch.int64)
    task = open_task(config.task, dataset.classes[label])
    labels = task.target(indexes).numpy()
    if len(np.unique(labels, axis=0)) < 2:
        raise DatasetError(
            f"dataset.label={label!r}: {counted(len(kept), 'image', 'are')} of one class; wanted two or more."
        )
    _, clusters = np.unique([sample.group or sample.id for sample in kept], return_inverse=True)
    headline = primary_metric_of(config.task).name
    with counting_bar("classifiers") as tell:
        predictions = cross_validate(
            found.values,
            labels,
            clusters,
            balanced=headline == EQUAL_CLASSES,
            strengths=config.strengths,
            num_folds=config.num_folds,
            num_inner_folds=config.num_inner_folds,
            seed=config.seed,
            num_threads=config.num_workers,
            progress=tell,
        )
    of_files = facts_of_files(dataset, label)
    of_files = replace(of_files, num_classes=num_named_classes(task, of_files.num_classes))
    facts = Facts(
        dataset=describe_dataset(config.dataset.name, of_files),
        label=label,
        headline=headline,
        model=config.model.name,
        image_size=config.image_size,
        groups=config.groups,
        num_classes=num_classes(labels),
        num_images=len(kept),
        num_clusters=len(np.unique(clusters)),
        num_rejected=len(found.rejected),
        majority_share=majority_share_of(labels),
        margin=config.margin,
        num_folds=config.num_folds,
        num_resamples=config.num_resamples,
        seed=config.seed,
        storage=asdict(config.storage),
        images_per_record=config.dataset.images_per_record,
        num_train_images=len(dataset.train),
        decode=config.decode,
        scans=config.records.scans.name,
    )
    measured = Measured(
        facts,
        predictions,
        labels,
        clusters,
        found.group_bytes,
        found.original_bytes,
        similarity,
        ids=[sample.id for sample in kept],
    )
    return measured, kept


def crops_of_task(config: ToleranceConfig) -> CropSettings:
    """Return the settings of the crops that the backbone sees."""
    return CropSettings(
        train_px=config.image_size,
        eval_px=config.image_size,
        augment=config.dataset.augment,
        antialias=config.antialias,
        decode=config.decode,
    )


def features_of(config: ToleranceConfig, images: ImageFiles) -> Features:
    """Return the backbone's features of the images, cached in `features_root`."""
    backbone = open_backbone(config.model, open_device("auto"))
    with counting_bar("images at every group") as tell:
        return extract_features(
            images, backbone, folder=Path(config.features_root), num_threads=config.num_workers, progress=tell
        )


def plan(config: ToleranceConfig) -> Planned:
    """Plan the features of images x levels; the classifiers' time comes on top."""
    there = num_in_files(config.dataset, config.splits)
    num_images, levels = min(config.max_images or there, there), len(config.groups) + 1
    facts = [f"{num_images:,} of {counted(there, 'image')} at {levels} levels, into {config.place}"]
    return plan_forward(facts, config.model, num_images * levels, config.image_size)
