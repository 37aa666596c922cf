"""Evaluate trained networks at scan groups and decode modes; draw what is lost."""

from dataclasses import asdict
from pathlib import Path

import torch

from pcr_exp.analysis.evaluation.page import check_headline, write_evaluation
from pcr_exp.config.evaluation import EvaluateConfig
from pcr_exp.errors import ConfigError
from pcr_exp.loading.transform import EvalTransform
from pcr_exp.measuring.evaluation import Trained, levels_of, outputs_of_classes, score_images
from pcr_exp.records.dataset_facts import describe_dataset
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.prepare import ensure_records
from pcr_exp.runners.studies.shown import track_files
from pcr_exp.runs.bars import counting_bar
from pcr_exp.runs.checkpoints import open_published, open_runs
from pcr_exp.runs.data import dataset_facts, open_unthrottled
from pcr_exp.training.device import open_device
from pcr_exp.training.task import AUC, headline_of, open_task


def evaluate(config: EvaluateConfig) -> str:
    """Score every image of a split at every level; returns "finished"."""
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    device = open_device(config.device)
    with counting_bar("records") as tell:
        ensure_records(config.dataset, config.records, progress=tell)
    baseline, progressive = (
        open_unthrottled(config.dataset, config.records, config.split, encoding)
        for encoding in ("baseline", "pcr")
    )
    outputs, num_outputs = outputs_of(config, baseline.index)
    headline = headline_of(config.task)
    check_headline(headline.name)
    open_task(config.task, baseline.index.classes[config.dataset.label])  # refuses what does not suit it
    trained = open_trained(config, num_outputs, baseline.index, device)
    with counting_bar("images") as tell:
        scores = score_images(
            trained,
            levels_of(baseline, progressive, config.groups, config.decodes, config.records.scans.name),
            config.loader,
            EvalTransform(config.image_size, config.dataset.augment, antialias=config.loader.antialias),
            label=config.dataset.label,
            outputs=outputs,
            batch_size=config.batch_size,
            device=device,
            margins=headline is AUC,
            progress=tell,
        )
    settings = {
        "dataset": describe_dataset(config.dataset.name, dataset_facts(config.dataset, config.records)),
        "label": config.dataset.label,
        "split": config.split,
        "fingerprint": baseline.index.fingerprint,
        "image_size_px": config.image_size,
        "antialias": config.loader.antialias,
        "headline": headline.name,
        "model": config.model.name,
        "num_threads": torch.get_num_threads(),
    }
    out = Path(config.out)
    files = write_evaluation(out, scores, settings, device)
    track_files(config.tracking, f"evaluate-{out.name}", out, asdict(config), files)
    for path in files:
        print(path)
    return "finished"


def outputs_of(config: EvaluateConfig, index: RecordIndex) -> tuple[torch.Tensor, int]:
    """Which of the networks' outputs stands for each class, and how many outputs they have."""
    if config.dataset.label not in index.classes:
        raise ConfigError(
            f"dataset.label={config.dataset.label!r}: the records have {', '.join(sorted(index.classes))}."
        )
    names = index.classes[config.dataset.label]
    if config.classes is None:
        return torch.arange(len(names)), len(names)
    path = Path(config.classes)
    if not path.is_file():
        raise ConfigError(f"classes={config.classes}: no such file; wanted a class on every line.")
    lines = path.read_text(encoding="utf-8").splitlines()
    return outputs_of_classes(names, lines, config.classes), len(lines)


def open_trained(
    config: EvaluateConfig, num_outputs: int, index: RecordIndex, device: torch.device
) -> list[Trained]:
    """The networks, on the device and in eval mode."""
    if not config.runs:
        trained = [open_published(config.model, num_outputs)]
    else:
        trained = open_runs(config, num_outputs, index)
    for each in trained:
        each.network.eval().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return trained
