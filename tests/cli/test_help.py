"""`--help` shows applicable settings with meaning and default, without heavy imports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from composing import SCHEMAS
from runner_processes import REPO

from experiments import catalogue
from pcr_exp.cli import help as helping
from pcr_exp.cli.help import meaning_of
from pcr_exp.config import components
from pcr_exp.config.compose import prepare_hydra
from pcr_exp.config.loader import STORAGE_SCHEMAS
from pcr_exp.errors import ConfigError
from pcr_exp.system.process import leaving_readers

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "110"}


def help_page(runner: str, arguments: list[str]) -> str:
    return helping.help_page(runner, SCHEMAS[runner], arguments)


def dataclasses_of(schema: Any) -> Iterator[type]:
    """Yield a dataclass of settings and those nested in it."""
    if isinstance(schema, type) and is_dataclass(schema):
        yield schema
        for hint in get_type_hints(schema).values():
            yield from dataclasses_of(hint)
    for argument in get_args(schema):
        yield from dataclasses_of(argument)


def documented_schemas() -> list[type]:
    prepare_hydra()
    of_options = [schema for group in components.groups() for schema in components.schemas(group).values()]
    given = [*SCHEMAS.values(), *STORAGE_SCHEMAS.values(), *of_options]
    every = {schema for one in given for schema in dataclasses_of(one)}
    ours = [schema for schema in every if schema.__module__.startswith("pcr_exp.")]
    return sorted(
        (one for one in ours if one.__module__.startswith("pcr_exp.")), key=lambda one: one.__name__
    )


@pytest.mark.parametrize("schema", documented_schemas(), ids=lambda schema: schema.__name__)
def test_every_setting_says_what_it_means(schema: type) -> None:
    hints = get_type_hints(schema)
    plain = [field.name for field in fields(schema) if not is_dataclass(hints[field.name])]
    assert [name for name in plain if not meaning_of(schema, name)] == []


@pytest.mark.parametrize("runner", sorted(SCHEMAS))
def test_each_command_shows_what_applies_to_it(runner: str) -> None:
    page = help_page(runner, ["--help"])
    assert page.startswith("usage: ") and "\nExamples\n" in page
    assert len(page.splitlines()) < 230
    assert "_schema" not in page, "no option that people would type"
    assert ("plan.workers=" in page or "plan=" in page) == (runner == "throughput"), "a group of one command"


def test_settings_have_their_meaning_and_default() -> None:
    lines = {line.split()[0]: line for line in help_page("train", ["--help"]).splitlines() if line.strip()}
    assert lines["training.epochs=10"].endswith("Passes over the training images.")
    assert "Capacity of the cache in MiB" in lines["storage.cache_mib=0.0"]
    assert "Speed limits of storage." in lines["storage=unlimited:"]
    quality = help_page("quality", ["--help"])
    assert "mssim_vs_scan" in quality and "time_to_accuracy" not in quality, "experiments of this command"


def test_overrides_choose_what_is_shown_and_a_word_shows_all_of_it() -> None:
    assert "scan.threshold=0.9" in help_page("train", ["scan=cosine", "scan.threshold=0.9", "--help"])
    swept = help_page("train", ["-m", "scan=baseline,group_1", "seed=4", "--help"])
    assert "scan.name=group_5" in swept and "seed=4" in swept
    page = help_page("train", ["--help", "storage"])
    assert "One 7,200 rpm disk." in page and "Nothing is evicted" in page and "training.epochs" not in page
    one = help_page("train", ["training.epochs", "-h"])
    assert one.splitlines() == ["training.epochs=10", "    Passes over the training images."]
    with pytest.raises(ConfigError, match=r"--help stroage: wanted a group or a setting: .*storage"):
        help_page("train", ["--help", "stroage"])


def test_a_meaning_is_looked_for_in_bases_and_may_be_missing() -> None:
    prepare_hydra()
    cosine = components.schemas("scan")["cosine"]
    found = meaning_of(cosine, "candidates")
    assert found == "Scan groups that the policy chooses among, in ascending order."
    assert meaning_of(cosine, "no_such_setting") == ""


def test_help_waits_for_no_heavy_import() -> None:
    """Help imports no heavy library; `python -m experiments.loaders.speed.help_time` measures its time."""
    program = """
import contextlib, io, sys
from pcr_exp.cli import main
for command in (["train"], ["evaluate"], ["figures"], ["sweep"], ["inspect"], []):
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        main([*command, "--help"])
    assert "usage" in said.getvalue(), command
from experiments.redraw import main
with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
    main(["--help"])
assert "results/quality" in said.getvalue()
print(*sorted({"torch", "torchvision", "matplotlib", "pandas", "scipy", "cv2"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_a_reader_who_leaves_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as left, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", left)
        with leaving_readers():
            print("x" * 100_000)
            print("and more", flush=True)
        assert sys.stdout is left


@pytest.mark.program
def test_head_leaves_no_traceback() -> None:
    shown = f"set -o pipefail; {sys.executable} -m pcr_exp train --help | head -1"
    done = subprocess.run(["bash", "-c", shown], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("usage: ")


@pytest.mark.program
def test_a_download_that_is_missing_is_said_in_a_line(tmp_path: Path) -> None:
    proxies = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), "http://127.0.0.1:9")
    command = ["train", "runner=smoke", "model=resnet18", "model.pretrained=true"]
    places = {"dataset.root": "photos", "records.root": "records", "runs_root": "runs"}
    roots = [f"{key}={tmp_path}/{name}" for key, name in places.items()]
    done = subprocess.run(
        [sys.executable, "-m", "pcr_exp", *command, *roots],
        env=ENVIRONMENT | proxies | {"TORCH_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.count("could not fetch the weights of 'resnet18'") == 1
    (log,) = tmp_path.glob("runs/*/log.txt")
    assert "Traceback" in log.read_text(), "for a report of a bug"


def test_asking_how_the_catalogue_is_made_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalogue, "PAGE", tmp_path / "README.md")
    with pytest.raises(SystemExit, match="0"):
        catalogue.main(["--help"])
    assert "python -m experiments.catalogue" in capsys.readouterr().out and not list(tmp_path.iterdir())
