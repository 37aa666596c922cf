"""`pcr-exp` lists runners and record tools, one a line, and messages name commands as they are typed."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import pytest

from experiments import catalogue, redraw
from experiments.report import ReportConfig, report
from pcr_exp import places
from pcr_exp.cli import RUNNERS, WITH_OPTIONS, main, schemas, start_runner
from pcr_exp.errors import RunError
from pcr_exp.system.provenance import command_line

REPO = Path(__file__).parents[2]
Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_alone_it_lists_every_command_in_a_line(arguments: list[str], capsys: Output) -> None:
    assert main(arguments) == 0
    said = capsys.readouterr().out
    listed = [line.split()[0] for line in said.splitlines()[2:]]
    assert listed == ["inspect", "verify", "extract", "convert", "doctor", *RUNNERS]
    assert max(map(len, said.splitlines())) < 90


def test_every_command_is_a_module_that_a_checkout_runs_as_well() -> None:
    assert set(RUNNERS) == set(places.INSTALLED)
    checkout = {path.stem: path.read_text() for path in (REPO / "experiments").glob("[a-z]*.py")}
    for name in RUNNERS:
        assert f'start("{name}")\n' in checkout[name] or f'"{name}", ' in checkout[name]


@pytest.mark.parametrize("name", sorted(schemas()))
def test_a_command_is_done_and_planned_with_its_own_settings(name: str) -> None:
    module = import_module(f"pcr_exp.cli.{name}")
    for function in (getattr(module, name), module.plan):
        assert get_type_hints(function)["config"] is schemas()[name]
    assert schemas().keys() | set(WITH_OPTIONS) == RUNNERS.keys()


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("tolerence", "did you mean tolerance?"), ("xyz", "wanted one of inspect, verify, ")],
)
def test_a_mistyped_command_names_the_nearest(typed: str, hint: str, capsys: Output) -> None:
    assert main([typed]) == 2
    said = capsys.readouterr().err
    assert f"pcr-exp {typed}: there is no such command" in said and hint in said


def test_a_runner_reads_what_stands_behind_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(sys, "argv", ["pcr-exp", "figures", "out=a"])
    monkeypatch.setattr("pcr_exp.cli.launch.launch", lambda *given: seen.append([*sys.argv, given[1]]))
    assert start_runner("figures", ["out=a"]) == 0
    assert seen == [["pcr-exp figures", "out=a", "figures"]]


@pytest.mark.parametrize(("module", "name"), [(redraw, "redraw"), (catalogue, "catalogue")])
def test_what_needs_a_checkout_says_so(
    module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKOUT", None)
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(RunError, match=f"{name}: wanted a checkout"):
        module.main()


def test_claims_want_a_folder_of_results(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"results_root=.*nowhere: there is no such folder.*a checkout"):
        report(ReportConfig(results_root=str(tmp_path / "nowhere")))


@pytest.mark.parametrize(
    ("checkout", "argv", "wanted"),
    [
        (REPO, ["python", "-m", "experiments.train"], "python -m experiments.prepare"),
        (REPO, ["python", "-u", "/bin/pcr-exp", "train"], "pcr-exp prepare"),
        (REPO, ["python", "-m", "pcr_exp", "train"], "pcr-exp prepare"),
        (None, ["python", "mine.py"], "pcr-exp prepare"),
    ],
)
def test_errors_name_commands_as_they_are_typed_here(
    checkout: Path | None, argv: list[str], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "CHECKOUT", checkout)
    monkeypatch.setattr(sys, "orig_argv", argv)
    assert str(RunError("Make it with `python -m experiments.prepare`.")) == f"Make it with `{wanted}`."
    of_a_checkout = "Draw it with `python -m experiments.redraw`."
    assert str(RunError(of_a_checkout)) == of_a_checkout, "pcr-exp has no such command"


@pytest.mark.parametrize(
    ("argv", "processes", "wanted"),
    [
        (["python", "-u", "/venv/bin/pcr-exp", "train", "-m", "seed=0,1"], "", "pcr-exp train -m seed=0,1"),
        (["python", "-m", "pcr_exp", "train"], "", "python -m pcr_exp train"),
        (["python", "-u", "-m", "pcr_exp", "train"], "2", "torchrun --nproc-per-node 2 -m pcr_exp train"),
        (["python", "pcr-exp", "train"], "2", "torchrun --nproc-per-node 2 --no-python pcr-exp train"),
    ],
)
def test_results_record_the_command_that_was_typed(
    argv: list[str], processes: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", argv)
    for name in ("TORCHELASTIC_RUN_ID", "GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    if processes:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    assert command_line() == wanted


def test_the_help_of_sweeps_names_commands_as_they_are_typed_here(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "/bin/pcr-exp", "sweep", "--help"])
    monkeypatch.setattr(sys, "argv", ["pcr-exp"])
    with pytest.raises(SystemExit):
        main(["sweep", "--help"])
    said = capsys.readouterr().out
    assert "usage: pcr-exp sweep" in said and "pcr-exp sweep status" in said and "experiments." not in said
