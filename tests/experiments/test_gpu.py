"""The parts of what a GPU is asked, at smoke size on the CPU."""

import json
import tarfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest
import torch

from experiments.gpu.parts import gpu
from experiments.gpu.settings import GpuConfig
from pcr_exp.config.compose import compose
from pcr_exp.errors import ConfigError, RunError

TESTS = Path(__file__).parents[1]
SMALL = [
    "device=cpu",
    "image_size=64",
    "batch_size=4",
    "num_updates=2",
    "max_batch_size=2",
    "reduce_mib=0.01",
]
WHERE = ["device", "num_cores", "torch", "git_sha", "git_dirty"]


def asked(out: Path, *more: str) -> Any:
    return compose(
        "gpu", GpuConfig, *SMALL, "reduce_mib=0.01", f"out={out}", f"archive={out / 'all.tar.gz'}", *more
    )


def test_memory_has_a_row_for_everything_that_is_measured(tmp_path: Path) -> None:
    assert gpu(asked(tmp_path, "part=memory", "models=[shufflenet_v2_x0_5]", "ways=[none]")) == "finished"
    rows = pd.read_csv(tmp_path / "memory" / "memory.csv")
    assert rows["measure"].tolist() == ["all_reduce", "update", "largest_batch"]
    assert rows["n"].tolist() == [2, 2, 1]
    assert rows[WHERE].drop(columns=["git_sha", "git_dirty"]).notna().all(axis=None)
    with tarfile.open(tmp_path / "all.tar.gz") as archive:
        assert {"memory/memory.csv", "memory/measured.json"} <= set(archive.getnames())


def test_what_no_time_was_left_for_is_named(tmp_path: Path) -> None:
    gpu(asked(tmp_path, "part=memory", "models=[shufflenet_v2_x0_5]", "ways=[none]", "max_s=1e-9"))
    skipped = json.loads((tmp_path / "memory" / "measured.json").read_text())["skipped"]
    model = "shufflenet_v2_x0_5, activations none, float32"
    assert skipped == ["all_reduce", f"updates of {model}", f"the largest batch of {model}"]


@pytest.mark.slow
def test_marked_tests_are_run_in_a_process_of_their_own(tmp_path: Path) -> None:
    gpu(asked(tmp_path, "part=tests", f"tests={TESTS / 'activations'}"))
    rows = pd.read_csv(tmp_path / "tests" / "tests.csv")
    wanted = "passed" if torch.cuda.is_available() else "failure"
    assert len(rows) and set(rows["outcome"]) == {wanted}
    assert rows["test"].str.contains("test_codec::").all()


def test_a_folder_without_marked_tests(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no test marked gpu there"):
        gpu(asked(tmp_path, "part=tests", f"tests={TESTS / 'gradients'}"))


def write_images(root: Path) -> None:
    """A class folder of grey images, and one of noise."""
    random = np.random.default_rng(0)
    for name, deviation in (("grey", 1), ("noise", 60)):
        (root / name).mkdir(parents=True)
        for i in range(40):
            pixels = random.normal(128, deviation, (64, 64, 3)).clip(0, 255).astype(np.uint8)
            cv2.imwrite(str(root / name / f"{i}.jpg"), pixels)


@pytest.mark.slow
def test_images_are_packed_and_runs_of_seconds_say_how_long_they_waited(tmp_path: Path) -> None:
    write_images(tmp_path / "source" / "folder")
    few = ("datasets=[folder]", f"data_root={tmp_path / 'data'}", f"source_root={tmp_path / 'source'}")
    gpu(asked(tmp_path, "part=pack", "max_images=50", *few))
    assert len(list((tmp_path / "data").rglob("*.jpg"))) == 50
    gpu(
        asked(
            tmp_path,
            *(
                "part=training",
                *few,
                "run_s=0.3",
                "num_workers=0",
                "overrides=['dataset.images_per_record=8']",
            ),
            *("models=[shufflenet_v2_x0_5]", "scans=[baseline,group_1]", "storages=[unlimited]"),
        )
    )
    rows = pd.read_csv(tmp_path / "training" / "training.csv")
    assert rows["scan"].tolist() == ["baseline", "group_1"]
    assert (rows["images_per_s"] > 0).all() and rows["wait_share"].between(0, 1).all()
    with tarfile.open(tmp_path / "all.tar.gz") as archive:
        names = archive.getnames()
    assert any(name.endswith("rows.jsonl") for name in names)
    assert not any("records" in name or name.endswith(".pt") for name in names)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("part=speed", "part='speed': wanted pack or tests or memory or training"),
        ("max_s=0", "max_s=0.0: wanted above 0"),
        ("batch_size=0", "batch_size=0: wanted at least 1"),
        ("scans=[]", r"scans=\[\]: wanted at least one"),
        ("num_workers=-1", "num_workers=-1: wanted null or at least 0"),
        ("archive=a.zip", "archive='a.zip': wanted null or a file that ends in .tar.gz"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_key(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose("gpu", GpuConfig, override)
