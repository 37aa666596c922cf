"""Commands recorded in results can be typed by anyone, whatever machine they ran on."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.compose import prepare_hydra
from pcr_exp.system.provenance import command_line, describe_code

REPO = Path(__file__).parents[2]
# A machine-specific folder at the start of a word or value.
MACHINE_PATH = re.compile(
    r"""(?:^|[\s=,:'"`\[(])/(?:work|root|home|tmp|mnt|data|opt|usr|var|Users)/""", re.MULTILINE
)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("TORCHELASTIC_RUN_ID", "GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    monkeypatch.chdir(tmp_path)
    return monkeypatch


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        (["-m", "seed=0,1"], "-m seed=0,1"),
        (["dataset.root=/home/me/photos"], "'dataset.root=~/photos'"),
        (["dataset.root=/mnt/disk/photos"], "'dataset.root=<folder>/photos'"),
        (["dataset.root=/mnt/a,/mnt/b", "seed=1"], "'dataset.root=<folder>/a,<folder>/b' seed=1"),
        (["records.root=s3://bucket/a", "out=../a/b"], "records.root=s3://bucket/a out=../a/b"),
        (["bandwidths=[1,2]"], "'bandwidths=[1,2]'"),
    ],
)
def test_a_command_holds_no_path_of_a_machine(
    typed: pytest.MonkeyPatch, overrides: list[str], wanted: str
) -> None:
    interpreter = "/some/venv/bin/python3.11"
    typed.setattr(sys, "orig_argv", [interpreter, "-u", "-m", "experiments.train", *overrides])
    assert command_line() == f"python -m experiments.train {wanted}"


def test_folders_below_the_working_folder_are_named_from_there(
    typed: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    typed.setattr(sys, "orig_argv", ["python", "-m", "experiments.train", f"runs_root={tmp_path}/runs"])
    assert command_line() == "python -m experiments.train runs_root=runs"
    typed.setattr(sys, "orig_argv", ["python", f"{tmp_path}/study.py", "1"])
    assert command_line() == "python study.py 1"


def test_processes_of_torchrun_say_how_they_were_started(typed: pytest.MonkeyPatch) -> None:
    typed.setattr(sys, "orig_argv", ["/venv/bin/python3", "-u", "-m", "experiments.train", "seed=1"])
    typed.setenv("TORCHELASTIC_RUN_ID", "none")
    typed.setenv("LOCAL_WORLD_SIZE", "2")
    assert command_line() == "torchrun --nproc-per-node 2 -m experiments.train seed=1"
    typed.setenv("GROUP_WORLD_SIZE", "3")
    assert command_line() == "torchrun --nnodes 3 --nproc-per-node 2 -m experiments.train seed=1"


def test_a_job_of_a_launcher_says_what_would_make_it_alone(typed: pytest.MonkeyPatch) -> None:
    prepare_hydra(commands={"train": TrainConfig})
    typed.setattr(sys, "orig_argv", ["/venv/bin/python", "-m", "joblib.externals.loky.worker", "--pipe", "7"])
    with initialize_config_dir(str(REPO / "configs"), version_base="1.3"):
        config = compose("train", ["scan=group_2", "seed=3"], return_hydra_config=True)
        config.hydra.runtime.output_dir = "."
        HydraConfig.instance().set_config(config)
    try:
        assert command_line() == "python -m experiments.train scan=group_2 seed=3"
    finally:
        HydraConfig.instance().cfg = None
        GlobalHydra.instance().clear()


def test_no_committed_result_names_a_folder_of_a_machine() -> None:
    """Eight recorded the path of an interpreter; only this path was removed from their commands."""
    listed = subprocess.run(["git", "ls-files", "results"], cwd=REPO, capture_output=True, text=True)
    files = [REPO / name for name in listed.stdout.splitlines()] or list((REPO / "results").rglob("*"))
    texts = [path for path in files if path.suffix in (".json", ".md", ".csv", ".jsonl", ".yaml", ".txt")]
    assert len(texts) > 100
    assert [str(path) for path in texts if MACHINE_PATH.search(path.read_text())] == []


@pytest.mark.parametrize(
    ("git_shas", "changed", "packages", "wanted"),
    [
        (["b2", "a1", "b2"], False, {}, "commit a1, b2"),
        (["a1", None], True, {}, "commit a1 with uncommitted changes"),
        ([None], None, {"pcr-exp": "0.1.0"}, "pcr-exp 0.1.0"),
        ([None], None, {"pcr-exp": None}, "pcr-exp of an unknown version"),
    ],
)
def test_what_measured_is_a_commit_or_else_a_version(
    git_shas: list[str | None], changed: bool | None, packages: dict[str, str | None], wanted: str
) -> None:
    assert describe_code(git_shas, changed, packages) == wanted
