"""The demo runs end to end, with fewer images and one epoch."""

import json
import time
from pathlib import Path
from subprocess import CompletedProcess

import pandas as pd
import pytest
from runner_processes import call

from pcr_exp.runs.rows import read_rows

pytestmark = pytest.mark.program

RUN = [
    "experiment=demo",
    "dataset.num_train=64",
    "dataset.num_val=32",
    "dataset.images_per_record=16",
    "training.epochs=1",
    "training.image_size=64",
]


def call_demo(out: Path) -> CompletedProcess[str]:
    run = [*RUN, f"dataset.root={out}/photos", f"records.root={out}/records"]
    overrides = ",".join(f"'{override}'" for override in run)
    small = ["labels=[photo]", "scans=[baseline,group_1]", "quality_images=4", f"overrides=[{overrides}]"]
    return call("demo", *small, f"out={out}")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    done = call_demo(folder)
    assert done.returncode == 0, done.stderr
    (folder / "stdout.txt").write_text(done.stdout)
    return folder


def test_it_ends_with_the_table_and_the_figures(out: Path) -> None:
    text = (out / "stdout.txt").read_text()
    for column in ("MS-SSIM", "images/s", "MiB/s", "wait", "top-1", "target", "baseline", "group 1"):
        assert column in text
    for name in ("time_to_accuracy", "mssim_vs_scan", "accuracy_vs_epoch", "bytes_per_group"):
        assert f"{name}.png" in text
        for ending in ("png", "pdf", "csv"):
            assert (out / "figures" / f"{name}.{ending}").stat().st_size > 0


def test_its_storage_is_half_as_fast_as_the_machine_and_the_result_says_so(out: Path) -> None:
    chosen = json.loads((out / "storage.json").read_text())
    assert chosen["share"] == 0.5
    wanted = 0.5 * chosen["images_per_s"] * chosen["bytes_per_image"] / 2**20
    assert chosen["bandwidth_mib_per_s"] == pytest.approx(wanted, rel=0.06)  # rounded to two digits
    result = (out / "stdout.txt").read_text().partition("result")[2]
    assert (
        f"storage: {chosen['bandwidth_mib_per_s']:g} MiB/s, 50% of the rate at which this machine" in result
    )
    for run in (out / "runs").glob("*/config.yaml"):
        assert f"bandwidth_mib_per_s: {chosen['bandwidth_mib_per_s']}\n" in run.read_text()


def test_its_runs_are_whole_and_their_clocks_add_up(out: Path) -> None:
    runs = sorted((out / "runs").iterdir())
    assert len(runs) == 2
    for run in runs:
        manifest = json.loads((run / "manifest.json").read_text())
        assert manifest["status"] == "finished"
        last = read_rows(run / "rows.jsonl")[-1]
        split = last["train_s"] + last["wait_s"] + last["eval_s"] + last["other_s"]
        assert split == pytest.approx(last["wall_s"], rel=0.01)
        assert (run / "training_curve.png").exists()


def test_quality_rises_with_the_scan_group(out: Path) -> None:
    quality = pd.read_csv(out / "quality" / "quality_summary.csv").set_index("group")["ms_ssim_mean"]
    assert list(quality.index) == list(range(1, 11))
    assert quality[1] < quality[2] < quality[5] < quality[10] == 1.0


def test_running_it_again_reuses_what_is_done(out: Path) -> None:
    chosen = (out / "storage.json").read_bytes()
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("rows.jsonl")}
    started = time.monotonic()
    done = call_demo(out)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is finished: skipped") == 2, done.stderr
    assert (out / "storage.json").read_bytes() == chosen
    assert "measured before" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("rows.jsonl")} == before
    assert time.monotonic() - started < 100
