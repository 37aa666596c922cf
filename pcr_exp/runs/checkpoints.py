"""Trained networks to evaluate: published weights, and checkpoints of finished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from pcr_exp.config.components import schemas
from pcr_exp.config.describe import scan_label
from pcr_exp.config.measuring import ALL, DEFAULT_MODEL, EvaluateConfig
from pcr_exp.config.training import ModelConfig
from pcr_exp.errors import ConfigError, RunError
from pcr_exp.measuring.evaluation import Trained
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.training.inputs import IMAGENET, KEY, Normalization, normalization_of
from pcr_exp.training.models import check_name, open_model
from pcr_exp.training.weights import load_checkpoint, weights_of


def open_published(config: ModelConfig, num_outputs: int) -> Trained:
    """Return the model with published weights; every weight must come from the file.

    Raises:
        ConfigError: there are no weights, or their head does not have `num_outputs` outputs.
    """
    # A head that does not fit is initialised at random, so it differs between two seeds.
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
            f"{num_outputs} classes, so there is nothing to evaluate. Wanted runs=[<folder>], or "
            "model.pretrained=true and either model.weights=<file> with as many outputs, or classes=<file> "
            "that names the outputs of the published weights."
        )
    return Trained(config.name, networks[0], normalization_of(config))


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run whose checkpoint is evaluated."""

    directory: RunDirectory
    settings: Mapping[str, Any]
    """Its `config.yaml`, as plain values."""

    @property
    def name(self) -> str:
        """The run's id."""
        return self.directory.path.name

    @property
    def dataset_name(self) -> str:
        """The name of its dataset."""
        return str(self.settings["dataset"]["name"])

    @property
    def model_name(self) -> str:
        """The name of its network."""
        return str(self.settings["model"]["name"])

    @property
    def image_size(self) -> int:
        """Side length in pixels of the images on which the network was evaluated."""
        return int(self.settings["training"]["eval_image_size"])


def find_runs(folders: Sequence[str]) -> list[FinishedRun]:
    """Return the finished runs among these folders and, sorted by name, those directly inside the others.

    A run that is named twice counts once.

    Raises:
        RunError: there is none, or one is damaged.
        ConfigError: their models or the sizes of their evaluation images differ.
    """
    found: list[FinishedRun] = []
    for folder in map(Path, folders):
        inside = sorted(folder.iterdir()) if folder.is_dir() else []
        for path in [folder] if (folder / "config.yaml").exists() else inside:
            directory = RunDirectory(path)
            is_new = path.resolve() not in {run.directory.path.resolve() for run in found}
            if is_new and directory.config_path.exists() and directory.status == "finished":
                found.append(FinishedRun(directory, directory.config()))
    if not found:
        raise RunError(
            f"runs={list(folders)}: no finished run there; wanted run directories, or folders that contain "
            "them."
        )
    for run in found[1:]:
        for what in ("model_name", "image_size"):
            one, other = getattr(found[0], what), getattr(run, what)
            if one != other:
                raise ConfigError(
                    f"runs={list(folders)}: the {what.replace('_', ' ')} of {found[0].name} is {one}, but "
                    f"that of {run.name} is {other}; wanted runs with the same one. Evaluate them one after "
                    "the other."
                )
    return found


def check_asked(config: EvaluateConfig, runs: Sequence[FinishedRun]) -> None:
    """Check that the requested evaluation fits the settings of the runs.

    Raises:
        ConfigError: their dataset, label, model or evaluation settings differ; the message says what to give.
    """
    for run in runs:
        if config.image_size not in (None, run.image_size):
            raise _another("image_size", config.image_size, run, run.image_size, "Leave it out")
        if config.model.name not in (DEFAULT_MODEL, run.model_name):
            raise _another("model.name", config.model.name, run, run.model_name, "Leave model out")
        dataset = run.settings["dataset"]
        if config.classes is None and config.dataset.name != run.dataset_name:
            manifest = run.directory.manifest()
            command = f" (the run was made by `{manifest.command}`)" if manifest is not None else ""
            remedy = (
                f"Give its dataset{command}; or, for other photographs, classes=<file> with the run's "
                "classes in their order, one per line"
            )
            raise _another("dataset.name", config.dataset.name, run, run.dataset_name, remedy)
        pairs = {
            "dataset.label": (dataset["label"], config.dataset.label),
            "dataset.augment.eval_crop_fraction": (
                dataset["augment"]["eval_crop_fraction"],
                config.dataset.augment.eval_crop_fraction,
            ),
            "loader.antialias": (run.settings["loader"].get("antialias", False), config.loader.antialias),
        }
        if config.classes is not None:
            del pairs["dataset.label"]  # other photographs may name their label differently
        elif config.split != ALL:  # in another split of the dataset are images that the run was trained on
            of_split = ("num_folds", "fold") if dataset.get("num_folds") else ("num_folds", "val_fraction")
            for key in (*of_split, "split_seed"):
                if key in dataset and hasattr(config.dataset, key):
                    pairs[f"dataset.{key}"] = (dataset[key], getattr(config.dataset, key))
        for key, (trained, asked) in pairs.items():
            if trained != asked:
                remedy = f"Give {key}={'null' if trained is None else trained}"
                raise _another(key, asked, run, trained, remedy)


def _another(key: str, asked: object, run: FinishedRun, trained: object, remedy: str) -> ConfigError:
    return ConfigError(f"{key}={asked!r}: the run {run.name} had {trained!r}. {remedy}.")


def open_runs(runs: Sequence[FinishedRun], num_outputs: int) -> list[Trained]:
    """Return the networks of runs, with the weights of their checkpoints.

    Raises:
        RunError: a run has no matching checkpoint.
        ConfigError: a run's model is not known here.
    """
    trained = []
    for run in runs:
        plain = replace(model_of(run.settings["model"]), pretrained=False, weights=None)
        network = open_model(plain, num_outputs)
        path = run.directory.checkpoint_path
        state = load_checkpoint(path)
        try:
            network.load_state_dict(weights_of(state))
        except (RuntimeError, KeyError) as error:
            raise RunError(
                f"{path} does not fit model.name={run.model_name!r} with {num_outputs} classes "
                f"({str(error).splitlines()[0]}). Was the run trained on other classes? Restore its dataset, "
                "name its classes in their order (classes=<file>), or evaluate another run."
            ) from error
        kept = state.get(KEY)
        normalization = Normalization.from_plain(kept) if kept else IMAGENET
        scan = scan_label(run.settings["scan"], run.settings.get("records"))
        trained.append(Trained(run.name, network, normalization, scan, run.settings["seed"]))
    return trained


def model_of(settings: Mapping[str, Any]) -> ModelConfig:
    """Return model settings from those in a run's `config.yaml`, which does not name the model family.

    Raises:
        ConfigError: no model family accepts them.
    """
    refused: ConfigError | None = None
    for schema in sorted(set(schemas("model").values()), key=lambda schema: len(fields(schema))):
        if not settings.keys() <= {field.name for field in fields(schema)}:
            continue
        try:
            made: ModelConfig = schema(**settings)
            check_name(made)
        except ConfigError as error:
            refused = error
        else:
            return made
    raise ConfigError(
        f"model.name={settings.get('name')!r}: no known family of models has it. If it comes from your own "
        "package, add components=[<package>]." + (f" ({refused})" if refused else "")
    )
