"""Studies send the tracker lines, tables, figures, and all their files as an artifact."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from composing import compose

from experiments.report import report
from experiments.throughput import throughput
from pcr_exp.analysis.report import Report
from pcr_exp.cli.demo import Calibration, demo
from pcr_exp.cli.prepare import prepare
from pcr_exp.cli.quality import quality
from pcr_exp.config.commands import TrackingConfig
from tests.cli.test_cli import class_folders, folder_overrides
from tests.runs.test_tracking import finished_records, items, offline_home

__all__ = ["class_folders", "offline_home"]

pytestmark = pytest.mark.usefixtures("light_figures")


class Recorder:
    """Tracker that records what it receives."""

    def __init__(self) -> None:
        self.shown: dict[str, list[str]] = {"figure": [], "table": [], "artifact": [], "finish": []}

    def figure(self, name: str, _: Path) -> None:
        self.shown["figure"].append(name)

    def table(self, name: str, path: Path) -> None:
        assert len(pd.read_csv(path))
        self.shown["table"].append(name)

    def artifact(self, name: str, files: Iterable[Path]) -> None:
        self.shown["artifact"] += [name, *sorted(path.name for path in files)]

    def log(self, row: Mapping[str, Any]) -> None:
        raise AssertionError(f"no lines: {row}")

    def finish(self) -> None:
        self.shown["finish"].append("finished")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    tracker = Recorder()
    monkeypatch.setattr("pcr_exp.cli.terminal.open_tracker", lambda *_: tracker)
    return tracker


@pytest.mark.program
@pytest.mark.usefixtures("offline_home")
def test_quality_shows_ms_ssim_over_scan_groups(class_folders: Path, tmp_path: Path) -> None:
    data, out = folder_overrides(class_folders, tmp_path / "records"), tmp_path / "out"
    quality(compose("quality", *data, "groups=[1,10]", f"out={out}", "tracking=wandb"))
    (file,) = (out / "wandb").glob("offline-run-*/*.wandb")
    records = finished_records(file)
    history = [items(r.history.item) for r in records if r.WhichOneof("record_type") == "history"]
    lines = {row["quality/group"]: row for row in history if "quality/group" in row}
    summary = pd.read_csv(out / "quality_summary.csv").set_index("group")
    assert set(lines) == {1, 10}
    for group, row in lines.items():
        assert row["quality/ms_ssim"] == pytest.approx(summary.loc[group, "ms_ssim_mean"])
        assert row["quality/bytes"] == pytest.approx(summary.loc[group, "bytes_mean"])
    logged = {key for row in history for key in row}
    assert {"tables/quality_summary/path", "figures/mssim_vs_scan/path"} <= logged
    (axis,) = (
        r.metric.step_metric for r in records if r.HasField("metric") and r.metric.glob_name == "quality/*"
    )
    assert axis == "quality/group"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files of a study: a page, a figure, a table, and a table that is too large to be shown."""
    names = ("page.md", "curve.png", "table.csv", "rows.csv")
    for name, text in zip(names, ("# Page\n", "", "x\n1\n", "x\n" + "1\n" * 200_000), strict=True):
        (tmp_path / name).write_text(text)
    return [tmp_path / name for name in names]


def test_throughput_shows_tables_and_figures(
    recorder: Recorder, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.loaders.page.report_throughput", lambda _: files)
    config = compose("throughput", "measure=false", f"out={tmp_path / 'loaders'}")
    assert throughput(config) == "finished"
    assert (recorder.shown["table"], recorder.shown["figure"]) == (["table"], ["curve"])
    kept = ["curve.png", "page.md", "rows.csv", "table.csv"]
    assert recorder.shown["artifact"] == ["throughput-loaders", *kept]
    assert recorder.shown["finish"] == ["finished"]


def test_report_shows_its_table_and_prints_its_page(
    recorder: Recorder, files: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Path] = []

    def write_claims(results: Path, readme: Path | None) -> list[Path]:
        assert readme is None
        asked.append(results)
        return files[:3]

    monkeypatch.setattr("experiments.claims.page.write_claims", write_claims)
    assert report(compose("report")) == "finished"
    assert asked == [Path("results")]
    assert recorder.shown["table"] == ["table"] and recorder.shown["artifact"][0] == "report"
    assert "Page" in capsys.readouterr().out


def test_the_demo_shows_its_report_and_each_of_its_runs(
    recorder: Recorder, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[tuple[str, TrackingConfig]] = []
    storage = Calibration(images_per_s=100, bytes_per_image=1e4, share=0.5, bandwidth_mib_per_s=0.5)
    report = Report(pd.DataFrame(), pd.DataFrame(), files[2:3], files[1:2])
    monkeypatch.setattr("pcr_exp.cli.demo.measure", lambda *_: None)
    monkeypatch.setattr("pcr_exp.cli.demo.calibrate", lambda _: storage)
    monkeypatch.setattr("pcr_exp.cli.demo.show", lambda _: None)
    monkeypatch.setattr("pcr_exp.cli.demo.write_report", lambda *_, **__: report)
    monkeypatch.setattr(
        "pcr_exp.cli.demo.run_training",
        lambda run, **_: trained.append((run.scan.name, run.tracking)),
    )
    asked = ("labels=[photo]", "scans=[baseline,group_1]", f"out={tmp_path}", "tracking=wandb")
    config = compose("demo", *asked)
    demo(config)
    assert trained == [("baseline", config.tracking), ("group_1", config.tracking)]
    assert recorder.shown["table"] == ["table"] and recorder.shown["figure"] == ["curve"]
    assert recorder.shown["artifact"] == ["demo", "curve.png", "table.csv"]


@pytest.mark.program
@pytest.mark.usefixtures("offline_home")
def test_prepare_shows_what_it_encoded(class_folders: Path, tmp_path: Path) -> None:
    data, out = folder_overrides(class_folders, tmp_path / "records"), tmp_path / "out"
    prepare(compose("prepare", *data, f"out={out}", "tracking=wandb"))
    table = pd.read_csv(out / "encoded.csv").set_index(["split", "encoding"])
    assert table.loc[("train", "pcr"), "num_images"] == 5 and (table["num_bytes"] > 0).all()
    (file,) = (out / "wandb").glob("offline-run-*/*.wandb")
    records = finished_records(file)
    history = [items(r.history.item) for r in records if r.WhichOneof("record_type") == "history"]
    (shown,) = [row for row in history if "tables/encoded/path" in row]
    assert shown["tables/encoded/nrows"] == len(table)


def test_prepare_leaves_no_table_untracked(
    class_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(compose("prepare", *folder_overrides(class_folders, tmp_path / "records")))
    assert not (tmp_path / "results").exists()
