"""Networks that are evaluated again: published weights, and the checkpoints of finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pcr_exp.config.evaluation import EvaluateConfig
from pcr_exp.config.labels import scan_label
from pcr_exp.config.model import ModelConfig
from pcr_exp.errors import ConfigError, RunError
from pcr_exp.measuring.evaluation import Trained
from pcr_exp.records.index import RecordIndex
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.training.checkpoint import load_checkpoint
from pcr_exp.training.models import open_model
from pcr_exp.training.normalization import IMAGENET, KEY, Normalization, normalization_of


def open_published(config: ModelConfig, num_outputs: int) -> Trained:
    """Return the model with its weights, all of which must come from the file.

    Raises:
        ConfigError: there are no weights, or they have no head of `num_outputs`.
    """
    # A head that does not fit starts from random numbers: two of them differ.
    networks = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        networks.append(open_model(config, num_outputs))
    first, second = (network.state_dict() for network in networks)
    fresh = [key for key, value in first.items() if not torch.equal(value, second[key])]
    if fresh:
        raise ConfigError(
            f"model.name={config.name!r} with model.pretrained={config.pretrained}, "
            f"model.weights={config.weights}: {fresh[-1]} and {len(fresh) - 1} more have no weights for "
            f"{num_outputs} classes, so there is nothing to evaluate. Wanted trained weights of as many "
            "outputs: model.weights=<file>, runs=[<folder>], or classes=<file> that names the outputs of the "
            "published weights."
        )
    return Trained(config.name, networks[0], normalization_of(config))


def open_runs(config: EvaluateConfig, num_outputs: int, index: RecordIndex) -> list[Trained]:
    """Return the networks of all finished runs in `config.runs`, in the order of their names.

    Raises:
        RunError: there is none, or one has no checkpoint that fits.
        ConfigError: a run was of another dataset, label, model or size than is asked for.
    """
    trained = []
    for directory in _finished(config.runs):
        settings = directory.config()
        _check_same(directory.path.name, settings, config, num_outputs)
        plain = replace(config.model, pretrained=False, weights=None)
        network = open_model(plain, num_outputs)
        state = load_checkpoint(directory.checkpoint_path)
        try:
            network.load_state_dict(state["model"])
        except (RuntimeError, KeyError) as error:
            raise RunError(
                f"{directory.checkpoint_path} does not fit model.name={config.model.name!r} with "
                f"{num_outputs} classes of {index.dataset} ({str(error).splitlines()[0]}). Was the run made "
                "of other classes? Restore its dataset, or evaluate another run."
            ) from error
        kept = state.get(KEY)
        normalization = Normalization.from_plain(kept) if kept else IMAGENET
        scan = scan_label(settings["scan"], settings.get("records"))
        trained.append(Trained(directory.path.name, network, normalization, scan, settings["seed"]))
    return trained


def _finished(folders: Sequence[str]) -> Iterator[RunDirectory]:
    found = False
    for folder in map(Path, folders):
        inside = sorted(folder.iterdir()) if folder.is_dir() else []
        for path in [folder] if (folder / "config.yaml").exists() else inside:
            directory = RunDirectory(path)
            if directory.config_path.exists() and directory.status == "finished":
                found = True
                yield directory
    if not found:
        raise RunError(f"runs={list(folders)}: no finished run there; wanted folders of runs, or of such.")


def _check_same(name: str, run: Mapping[str, Any], config: EvaluateConfig, num_outputs: int) -> None:
    augment = config.dataset.augment
    pairs = {
        "dataset.name": (run["dataset"]["name"], config.dataset.name),
        "dataset.label": (run["dataset"]["label"], config.dataset.label),
        "dataset.augment.eval_crop_fraction": (
            run["dataset"]["augment"]["eval_crop_fraction"],
            augment.eval_crop_fraction,
        ),
        "model.name": (run["model"]["name"], config.model.name),
        "image_size": (run["training"]["eval_image_size"], config.image_size),
        "loader.antialias": (run["loader"].get("antialias", False), config.loader.antialias),
    }
    for key, (trained, asked) in pairs.items():
        if trained != asked:
            raise ConfigError(
                f"{key}={asked!r}: the run {name}, of {num_outputs} classes, had {trained!r}. Give "
                f"{key}={trained}, or runs that are alike."
            )
