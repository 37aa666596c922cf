"""The runners as a user calls them: real processes, real exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from runner_processes import REPO, call
from skimage import data as pictures

pytestmark = pytest.mark.program


@pytest.fixture
def class_folders(tmp_path: Path) -> Path:
    """Create two classes of four small photographs each."""
    root = tmp_path / "pictures"
    for name in ("coffee", "rocket"):
        picture = getattr(pictures, name)()
        for i in range(4):
            folder = root / name
            folder.mkdir(parents=True, exist_ok=True)
            crop = np.ascontiguousarray(picture[i * 20 : i * 20 + 96, 40:168])
            Image.fromarray(crop).save(folder / f"{i}.jpg", quality=90)
    return root


def folder_overrides(root: Path, out: Path) -> list[str]:
    """Return overrides whose seed gives five images to train, one to tune, and one of each class to val."""
    few = ["dataset.images_per_record=4", "dataset.split_seed=4"]
    return ["dataset=folder", f"dataset.root={root}", f"records.root={out}", *few]


@pytest.mark.parametrize("runner", ["prepare", "train", "quality", "figures", "demo"])
def test_help_shows_a_newcomer_what_to_type(runner: str) -> None:
    done = call(runner, "--help")
    assert done.returncode == 0, done.stderr
    assert "Examples" in done.stdout and f"python -m experiments.{runner}" in done.stdout
    if runner == "train":
        assert "group_5" in done.stdout and "hdd" in done.stdout and "ham10000" in done.stdout


def test_what_was_typed_wrongly_is_answered_before_anything_slow_is_imported() -> None:
    program = (
        "import runpy, sys\n"
        "sys.argv = ['train', 'training.epochs=none at all']\n"
        "try: runpy.run_module('experiments.train', run_name='__main__', alter_sys=True)\n"
        "finally: print(sorted({'torch', 'torchvision', 'pandas', 'matplotlib', 'wandb'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1 and "training.epochs" in done.stderr
    assert done.stdout.strip().endswith("[]"), done.stdout


def test_prepare_says_what_it_made_and_leaves_the_folder_it_ran_in_alone(
    class_folders: Path, tmp_path: Path
) -> None:
    ran_in = tmp_path / "elsewhere"
    ran_in.mkdir()
    done = call("prepare", *folder_overrides(class_folders, tmp_path / "records"), cwd=ran_in)
    assert done.returncode == 0, done.stderr
    assert "train: 5 images in 2 records" in done.stdout and "val: 2 images in 1 record," in done.stdout
    assert "tune: 1 image in 1 record," in done.stdout
    assert list(ran_in.iterdir()) == []


def test_rejected_images_are_told(class_folders: Path, tmp_path: Path) -> None:
    (class_folders / "coffee" / "9.jpg").write_bytes(b"")
    arguments = folder_overrides(class_folders, tmp_path / "records")
    failed = call("prepare", *arguments)
    assert failed.returncode == 1
    assert "9.jpg" in failed.stderr and "records.on_error=skip" in failed.stderr
    assert "Traceback" not in failed.stderr
    done = call("prepare", *arguments, "records.on_error=skip")
    assert done.returncode == 0, done.stderr
    assert "1 rejected, with reasons in rejected.csv" in done.stdout


def test_check_says_what_changed_and_prepare_what_was_left_alone(class_folders: Path, tmp_path: Path) -> None:
    (class_folders / "coffee" / "drawing.png").touch()
    named = class_folders.rename(tmp_path / "my photos")
    arguments = folder_overrides(named, tmp_path / "my records")
    done = call("prepare", *arguments)
    assert done.returncode == 0, done.stderr
    assert "next to 8 JPEG files there are 1 .png, which are ignored" in done.stdout
    assert "next to 8 JPEG files there are 1 .png, which are ignored" in done.stderr
    assert str(tmp_path / "my records" / "my_photos-") in done.stdout
    done = call("prepare", "--check", *arguments)
    assert done.returncode == 0, done.stderr
    assert "8 images are unchanged since the records were made" in done.stdout
    done = call("prepare", "--check=content", *arguments)
    assert done.returncode == 0 and "the bytes of 8 were compared with those in the records" in done.stdout
    (named / "rocket" / "0.jpg").unlink()
    failed = call("prepare", "--check", *arguments)
    assert failed.returncode == 1 and "Traceback" not in failed.stderr
    assert "1 removed: rocket/0.jpg" in failed.stderr and "records.on_change" in failed.stderr


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dataset.name=a/b", "dataset.name='a/b': wanted letters a to z and A to Z"),
        ("dataset.typo=5", "typo"),
        ("+dataset.typo=5", "unknown configuration key"),
        ("dataset.images_per_record=0", "dataset.images_per_record=0: wanted at least 1"),
        ("dataset=imagenet22k", "ham10000"),  # Hydra lists the options
    ],
)
def test_a_wrong_word_on_the_command_line(override: str, message: str) -> None:
    done = call("prepare", override)
    assert done.returncode == 1
    assert message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_a_failed_job_does_not_stop_a_sweep_and_is_listed_at_its_end(
    class_folders: Path, tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    arguments = folder_overrides(class_folders, tmp_path / "records")
    arguments[1] = f"dataset.root={missing},{class_folders}"
    done = call("prepare", "-m", *arguments, f"hydra.sweep.dir={tmp_path / 'sweep'}")
    assert done.returncode == 1
    assert "2 jobs, 1 failed" in done.stderr
    table = done.stderr[done.stderr.index("2 jobs, 1 failed") :]
    assert "finished" in table and "failed" in table and str(missing) in table
    assert "train: 5 images" in done.stdout, "the job after the failed one was done"


@pytest.mark.parametrize(
    ("task", "status", "message"),
    [
        ("lambda config: 1 / 0", 1, "ZeroDivisionError"),
        ("lambda config: (_ for _ in ()).throw(KeyboardInterrupt)", 130, "interrupted; run the same command"),
    ],
)
def test_a_bug_keeps_its_traceback_and_ctrl_c_does_not(task: str, status: int, message: str) -> None:
    program = (
        "from pcr_exp.cli.launch import launch\n"
        "from pcr_exp.config.commands import FiguresConfig\n"
        f"launch({task}, 'figures', FiguresConfig, print)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == status
    assert message in done.stderr
    assert ("Traceback" in done.stderr) == (status == 1)


def test_an_interrupt_is_one_though_a_library_turns_it_into_its_own_error() -> None:
    program = (
        "import os, signal\n"
        "from pcr_exp.cli import launch\n"
        "from pcr_exp.config.commands import FiguresConfig\n"
        "def interrupted(*_):\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt: raise AttributeError('as OmegaConf does')\n"
        "launch.prepare_hydra = interrupted\n"
        "launch.launch(print, 'figures', FiguresConfig, print)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=120)
    assert done.returncode == 130, done.stderr
    assert (
        "interrupted; run the same command again to continue" in done.stderr
        and "Traceback" not in done.stderr
    )


@pytest.mark.parametrize(("num_processes", "jobs_done"), [(1, 2), (2, 1)])
def test_a_failed_job_stops_a_sweep_of_several_processes(
    num_processes: int, jobs_done: int, tmp_path: Path
) -> None:
    program = (
        "from pcr_exp.cli.launch import launch\n"
        "from pcr_exp.config.commands import FiguresConfig\n"
        "launch(lambda config: print('began') or 1 / 0, 'figures', FiguresConfig, print)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "-m", "out=one,two", f"hydra.sweep.dir={tmp_path}"],
        cwd=REPO,
        env=os.environ | {"WORLD_SIZE": str(num_processes)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.count("began") == jobs_done


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    done = call("figures", f"runs_root={tmp_path}", f"quality_root={tmp_path}", f"out={tmp_path / 'out'}")
    assert done.returncode == 1
    assert "nothing to draw" in done.stderr and "Traceback" not in done.stderr
