"""A study's result folder, named after everything that determines the results; no other study overwrites it.

Studies are `experiments.quality`, `experiments.tolerance` and `experiments.evaluate`. Like a training's run
directory, each has its own folder, `<out_root>/<words>-<key>`. The key covers the settings, the images and
their folder, the numerics version and the user's own components; `identity.json` holds these values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pcr_exp.config.commands import StudyConfig
from pcr_exp.config.component_code import component_code
from pcr_exp.errors import RunError
from pcr_exp.runs.identity import differences, file_key, identity_of_study, slug
from pcr_exp.system.atomic import make_folder
from pcr_exp.system.keys import key_of
from pcr_exp.system.lock import hold
from pcr_exp.system.provenance import write_json

IDENTITY_FILE = "identity.json"
_LOCK = "lock"
_RESULTS = ("quality.json", "tolerance.json", "evaluation.json", "sample_image.csv")
"""Result files of all studies; a finished study leaves at least one of them in its folder."""


@contextmanager
def claim_results(config: StudyConfig, words: Sequence[str], images: str, **facts: Any) -> Iterator[Path]:
    """Lock a study's folder, creating it if needed; the same study may write to it again.

    Args:
        config: The study's whole configuration.
        words: Start of the folder's name, such as dataset, label and model; a key follows.
        images: Key of the images that are studied.
        facts: Other plain values that determine the results, such as the evaluated runs.

    Raises:
        RunError: the folder has results of another study, or another process is using it.
    """
    identity = identity_of_study(
        {**asdict(config), **facts, **_in_files(config), "study": type(config).__name__},
        images,
        component_code(config),
    )
    name = slug([*words, key_of(identity)])
    folder = Path(config.out_root, name) if config.out is None else Path(config.out)
    make_folder(folder)
    with hold(folder / _LOCK, lambda holder: _in_use(folder, holder)):
        _require_own(folder, identity)
        write_json(folder / IDENTITY_FILE, identity)
        yield folder


def _in_files(config: StudyConfig) -> dict[str, str | None]:
    """Return keys for settings that are paths: the images' folder, weights and names of classes."""
    named = {key: getattr(config.dataset, key, None) for key in ("root", "table")}
    where = {key: None if path is None else str(Path(path).resolve()) for key, path in named.items()}
    weights = getattr(getattr(config, "model", None), "weights", None)
    return {
        "images_in": key_of(where),
        "weights_in": file_key(weights),
        "classes_in": file_key(getattr(config, "classes", None)),
    }


def _in_use(folder: Path, holder: str) -> RunError:
    return RunError(
        f"{folder} is in use by {holder}, which makes the same measurement or has the same out=. Wait for it "
        "to end, or give another out=."
    )


def _require_own(folder: Path, identity: Mapping[str, Any]) -> None:
    if not any((folder / name).exists() for name in _RESULTS):
        return  # there are no results to lose
    remedy = (
        "Omit out= (then each study has a folder of its own), give another out=, or move this folder away."
    )
    try:
        found = json.loads((folder / IDENTITY_FILE).read_text())
    except FileNotFoundError:
        raise RunError(f"{folder} has results of an unknown study (no {IDENTITY_FILE}). {remedy}") from None
    except ValueError as error:
        raise RunError(f"{folder / IDENTITY_FILE} is damaged: {error}. {remedy}") from error
    if found != identity:
        different = differences(found, identity) if isinstance(found, dict) else ["all of it"]
        raise RunError(f"{folder} has results of another study: {', '.join(different)} differ. {remedy}")
