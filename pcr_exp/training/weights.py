"""Pretrained weights from a local file or torchvision, and saving and loading of checkpoints."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
import torchvision  # type: ignore[import-untyped]
from torch import Tensor, nn

from pcr_exp.errors import ConfigError, RunError
from pcr_exp.system.atomic import write_atomic

log = logging.getLogger(__name__)

_NUM_NAMED = 5

_AUXILIARY = ("AuxLogits.", "aux1.", "aux2.")

# torchvision's DenseNet files have denselayer1.norm.1.weight where its model has denselayer1.norm1.weight.
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")


def load_pretrained(model: nn.Module, name: str, weights: str | None) -> None:
    """Load everything except a head of another size, which keeps its fresh weights and is logged.

    Args:
        model: The model, changed in place.
        name: The model's name; torchvision's if `weights` is None.
        weights: A local state dict, bare or under the key `model` (as in a run's checkpoint.pt);
            None: torchvision's default weights.

    Raises:
        ConfigError: the weights cannot be read or fetched, or a key outside the head does not fit.
    """
    source = weights if weights is not None else f"torchvision's default weights of {name}"
    state = _read_file(weights) if weights is not None else _fetch(name)
    wanted = model.state_dict()
    head_keys = _head_keys(wanted)
    for old in [key for key in state if _OLD_DENSENET.search(key)]:
        state[_OLD_DENSENET.sub(r"\1\2", old)] = state.pop(old)
    for key in [key for key in state if key.startswith(_AUXILIARY) and key not in wanted]:
        del state[key]
    if any(key not in state or state[key].shape != wanted[key].shape for key in head_keys):
        for key in head_keys:
            state.pop(key, None)
        log.info(
            "%s: the head does not fit this label and is initialised at random (%s)", source, _some(head_keys)
        )
    reshaped = [
        f"{key} {list(state[key].shape)}, wanted {list(wanted[key].shape)}"
        for key in state
        if key in wanted and state[key].shape != wanted[key].shape
    ]
    if reshaped:
        raise ConfigError(f"{source} does not fit model.name={name!r}: shapes differ at {_some(reshaped)}.")
    keys = model.load_state_dict(state, strict=False)
    missing = [key for key in keys.missing_keys if key not in head_keys]
    if missing or keys.unexpected_keys:
        raise ConfigError(
            f"{source} does not fit model.name={name!r}: "
            f"missing {_some(missing)}; unknown {_some(keys.unexpected_keys)}."
        )


def read_beside_weights(weights: str, key: str) -> Any:
    """Return the value under `key` in a run's checkpoint; None if the file has no such key.

    Raises:
        ConfigError: the file cannot be read.
    """
    loaded = _load_file(weights)
    return loaded.get(key) if isinstance(loaded, dict) and isinstance(loaded.get("model"), dict) else None


def _head_keys(state: dict[str, Tensor]) -> list[str]:
    # In every torchvision classifier, the head is the module registered last (a test checks all of them).
    module = next(reversed(state)).rpartition(".")[0]
    return [key for key in state if key.rpartition(".")[0] == module]


def _load_file(weights: str) -> Any:
    path = Path(weights).expanduser()
    if not path.is_file():
        raise ConfigError(f"model.weights={weights!r}: no such file. Wanted a state dict from torch.save.")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's unpickler raises any kind of error on garbage
        raise ConfigError(
            f"model.weights={weights!r} cannot be read as a state dict saved by torch.save"
            f" ({type(error).__name__}: {error})."
        ) from error


def weights_of(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights that a run reports on: a parameter server's, if any, since workers lag behind it."""
    server = (checkpoint.get("exchange") or {}).get("server") or {}
    return {**checkpoint["model"], **server.get("weights", {})}


def _read_file(weights: str) -> dict[str, Tensor]:
    loaded = _load_file(weights)
    if isinstance(loaded, dict) and isinstance(loaded.get("model"), dict):
        loaded = weights_of(loaded)
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise ConfigError(
            f"model.weights={weights!r}: wanted a dict of tensors, bare or under the key 'model'."
        )
    return loaded


def _fetch(name: str) -> dict[str, Tensor]:
    choices = torchvision.models.get_model_weights(name)
    if not len(choices):
        raise ConfigError(
            f"model.pretrained=true: torchvision has no weights of {name!r}; give a file as model.weights."
        )
    try:
        return choices.DEFAULT.get_state_dict(progress=False, check_hash=True)
    except (URLError, OSError, RuntimeError) as error:
        raise ConfigError(
            f"model.pretrained=true: torchvision could not fetch the weights of {name!r} ({error}). "
            "Where there is no network, give a state dict as model.weights=<file>."
        ) from error


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else ""
    return (", ".join(names[:_NUM_NAMED]) or "nothing") + more


FORMAT = 1


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write `state` (tensors, numbers, strings, lists, dicts); a crash leaves the previous or the new file.

    Raises:
        StorageError: the disk is full or refuses the write.
    """
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    write_atomic(path, [buffer.getvalue()])


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Raises:
        RunError: the file is damaged, or has another format.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's unpickler raises any kind of error on garbage
        raise RunError(
            f"{path} cannot be read as a checkpoint ({type(error).__name__}: {error}). "
            "Delete its run directory to start the run again."
        ) from error
    found = state.get("format") if isinstance(state, dict) else None
    if found != FORMAT:
        raise RunError(
            f"{path} is a checkpoint of format {found!r}; this version reads format {FORMAT}. "
            "Delete its run directory to start the run again."
        )
    return state
