"""A run writes none of the secrets in its configuration, its command, its log and its errors."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tiny_model import TinyConfig, open_tiny
from torch import nn

from pcr_exp.config.components import register
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.train_run import run_training

SECRET = "hunter2x"
ADDRESS = f"https://me:{SECRET}@host/weights?sig={SECRET}"


@dataclass(kw_only=True, slots=True)
class LoggedInConfig(TinyConfig):
    """A user's own model, with credentials for loading its weights."""

    name: str = "logged_in"
    api_token: str = SECRET
    client: dict[str, Any] = field(
        default_factory=lambda: {"headers": {"Authorization": f"Bearer {SECRET}"}, "urls": [ADDRESS]}
    )


IS_GONE = {"weights": True}


@register("model", "logged_in", LoggedInConfig)
def open_logged_in(config: LoggedInConfig, num_classes: int) -> nn.Module:
    logging.getLogger("pcr_exp.users").warning("weights of %s", config.client["urls"][0])
    if IS_GONE["weights"]:
        raise RuntimeError(f"{config.client['urls'][0]} is gone")
    return open_tiny(config, num_classes)


def files_with(secret: str, folder: Path) -> list[str]:
    found = [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    return [str(path.relative_to(folder)) for path in found]


def test_no_file_of_a_run_holds_a_secret(
    configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    typed = ["--token", SECRET, f"model.client={{secret:{SECRET}}}", f"a=https://me:{SECRET}@host"]
    monkeypatch.setattr(sys, "orig_argv", ["python", "mine.py", *typed])
    config = configure(model=LoggedInConfig(), tracking__name="wandb")
    monkeypatch.setitem(IS_GONE, "weights", True)
    with pytest.raises(RuntimeError, match="is gone"):
        run_training(config, progress=False)
    (folder,) = (tmp_path / "runs").iterdir()
    failed = read_manifest(folder / "manifest.json")
    assert failed.error == "RuntimeError: https://***@host/weights?sig=*** is gone"
    assert failed.command.endswith("--token '***' 'model.client={secret:***}' 'a=https://***@host'")
    log = (folder / "log.txt").read_text()
    assert "weights of https://***@host/weights?sig=***" in log and "Traceback" in log
    assert "api_token: '***'" in (folder / "config.yaml").read_text()
    assert files_with(SECRET, tmp_path / "runs") == []

    monkeypatch.setitem(IS_GONE, "weights", False)
    config.model = LoggedInConfig(api_token="another")
    outcome = run_training(config, progress=False)
    assert (outcome.folder, outcome.status) == (folder, "finished"), "a run goes on with another token"
    assert list((folder / "wandb").iterdir())
    assert files_with(SECRET, tmp_path / "runs") == files_with("another", tmp_path / "runs") == []
