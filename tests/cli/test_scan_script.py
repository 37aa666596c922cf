"""Another scan script works from the command line to tables: prepare, train, measure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from jpeg_photos import needs_jpegtran

REPO = Path(__file__).parents[2]


def run(runner: str, *arguments: str) -> str:
    command = [sys.executable, "-m", f"experiments.{runner}", *arguments, "runner=smoke"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.program
@needs_jpegtran
def test_a_script_is_prepared_trained_on_and_measured(tmp_path: Path) -> None:
    records = ("records.scans=spectral", f"records.root={tmp_path / 'records'}")
    run("prepare", *records)
    (index,) = (tmp_path / "records").glob("*/train/pcr/index.json")
    assert json.loads(index.read_text())["num_groups"] == 6
    runs = tmp_path / "runs"
    run("train", "-m", "scan=group_3,full", *records, f"runs_root={runs}")
    manifests = [json.loads(path.read_text()) for path in sorted(runs.glob("*/manifest.json"))]
    assert sorted((m["status"], m["scan_group"]) for m in manifests) == [("finished", 3), ("finished", 6)]
    names = sorted(m["run_id"] for m in manifests)
    assert all(f"group_{group}_of_spectral" in name for group, name in zip((3, 6), names, strict=True))
    out = tmp_path / "quality"
    run("quality", *records, f"out={out}", "max_images=4")
    summary = pd.read_csv(next(out.rglob("quality.csv")))
    assert sorted(summary["group"].unique()) == [1, 6], "the smoke size measures groups 1 and 10, the last"
    assert list((tmp_path / "records").iterdir()) == [index.parents[2]], "one set of records served them all"
