"""Users' measurements are written and looked up below outputs/ only, apart from the project's results."""

import subprocess
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from composing import SCHEMAS, compose

from experiments.figures import figures
from pcr_exp.cli import sweep
from pcr_exp.cli.figures import figures as standard_figures
from pcr_exp.errors import ConfigError
from pcr_exp.places import CONFIGS
from tests.analysis.test_quality_files import DECODED, ROWS, index, write_quality

REPO = Path(__file__).parents[2]
OURS = {("report", "results_root")}
"""The only setting that refers to the committed results."""


def words(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every string in a configuration after the key that it is below."""
    if is_dataclass(value):
        for field in fields(value):
            yield from words(getattr(value, field.name), field.name)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from words(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from words(each, key)
    elif isinstance(value, str):
        yield key, value


@pytest.mark.parametrize("runner", SCHEMAS)
def test_no_command_reads_or_writes_the_project_s_results_unless_asked(runner: str) -> None:
    named = {(runner, key) for key, text in words(compose(runner)) if text.strip("[").startswith("results")}
    assert named <= OURS
    assert not str(sweep.ROOT).startswith("results")


def test_nor_does_any_option_or_experiment() -> None:
    for path in sorted(CONFIGS.rglob("*.yaml")):
        content = yaml.safe_load(path.read_text()) or {}
        told = content.pop("hydra", {})
        assert not [text for _, text in words(content) if text.strip("[").startswith("results/")], path.name
        assert not str(told.get("sweep", {}).get("dir", "")).startswith("results/"), path.name


def test_nor_does_a_module_that_measures() -> None:
    for path in sorted([*(REPO / "pcr_exp").rglob("*.py"), *(REPO / "experiments").rglob("*.py")]):
        assert 'Path("results/' not in path.read_text(), path.name


def test_git_ignores_the_folder() -> None:
    asked = ["git", "-C", str(REPO), "check-ignore", "outputs/quality/pets-val-0123abcd/quality.csv"]
    if subprocess.run(["git", "-C", str(REPO), "rev-parse"], check=False).returncode:
        pytest.skip("not a checkout")
    assert subprocess.run(asked, check=False).returncode == 0


@pytest.mark.usefixtures("light_figures")
def test_figures_of_one_s_own_pets_show_no_committed_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_quality("outputs/quality/pets-val-0123abcd", ROWS, index("pets"), DECODED)
    write_quality("results/quality/cars", ROWS, index("cars"), DECODED)
    assert figures(compose("figures")) == "finished"
    drawn = Path("outputs/figures/mssim_vs_scan.csv").read_text()
    assert "pets" in drawn and "cars" not in drawn
    assert "outputs/figures/mssim_vs_scan.png" in capsys.readouterr().out
    figures(compose("figures", "quality_root=results/quality"))
    assert "cars" in Path("outputs/figures/mssim_vs_scan.csv").read_text(), "where they are asked for"


@pytest.mark.parametrize(("given", "meant"), [("true", "times"), ("false", "none"), ("content", "content")])
def test_a_check_is_of_times_or_of_contents(given: str, meant: str) -> None:
    assert compose("prepare", f"check={given}").check == meant
    with pytest.raises(ConfigError, match="check='bytes': wanted none or times or content"):
        compose("prepare", "check=bytes")


def test_times_are_projected_by_the_repositorys_figures_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"timing_root=timed: wanted null.*experiments\.figures"):
        standard_figures(compose("figures", "timing_root=timed", f"out={tmp_path}"))
