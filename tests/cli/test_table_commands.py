"""Rows of a table of photographs become records, and commands learn a task from any column."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
from composing import compose

import pcr_exp
from pcr_exp.cli import tolerance as study
from pcr_exp.cli.evaluate import evaluate
from pcr_exp.cli.prepare import prepare
from pcr_exp.cli.quality import quality
from pcr_exp.errors import ConfigError, DatasetError, RecordError
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.rows import read_rows
from pcr_exp.runs.train_run import run_training

pytestmark = pytest.mark.usefixtures("light_figures")

NUM = 48


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Table of images with their redness as a class, as one of two tags, and as a number."""
    root = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    rows = []
    for i in range(NUM):
        image = rng.integers(0, 60, (40, 40, 3), dtype=np.uint8)  # BGR
        image[..., 2] += np.uint8(4 * i)
        image[..., 0] += np.uint8(150 * (i % 4 >= 2))
        cv2.imwrite(str(root / f"{i:02}.jpg"), image)
        part = ("train", "train", "train", "tune", "val")[i // 4 % 5]
        tags = ";".join([*(["blue"] if i % 4 >= 2 else []), *(["red"] if i >= NUM // 2 else [])])
        rows.append([f"{i:02}.jpg", "red" if i >= NUM // 2 else "dark", tags, i / 10, part])
    with (root / "labels.csv").open("w") as file:
        csv.writer(file).writerows([["file", "kind", "tags", "redness", "part"], *rows])
    return root / "labels.csv"


def settings(table: Path, root: Path, label: str = "kind", kind: str = "class", *more: str) -> list[str]:
    return [
        *(
            "dataset=table",
            f"dataset.table={table}",
            f"dataset.label={label}",
            f"dataset.columns.kind={kind}",
        ),
        *("dataset.columns.path=file", "dataset.columns.split=part", "dataset.images_per_record=8"),
        *(f"records.root={root / 'records'}", "records.num_workers=1", *more),
    ]


def test_rows_become_records_and_those_that_cannot_are_listed(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = table.with_name("longer.csv")
    longer.write_text(table.read_text() + "00.jpg,dark,,0,train\nnone.jpg,red,,1,val\n01.jpg,,,1,val\n")
    given = settings(longer, tmp_path, "kind", "class", "dataset.columns.labels=[part]")
    with pytest.raises(DatasetError, match=r"3 of 51 rows .*row 50 \(00.jpg\): listed twice.*row 52"):
        prepare(compose("prepare", *given))
    assert not (tmp_path / "records").exists()
    skipping = compose("prepare", *given, "records.on_error=skip")
    assert prepare(skipping) == "finished"
    (folder,) = (tmp_path / "records").iterdir()
    listed = (folder / "rejected.csv").read_text().splitlines()
    assert listed == [
        "id,reason",
        "row 50 (00.jpg),listed twice; the first row counts",
        "row 51 (none.jpg),no such file",
        "row 52 (01.jpg),no kind",
    ]
    assert "3 rows are left out: row 50 (00.jpg)" in capsys.readouterr().out
    val = pcr_exp.open(folder / "val", label="kind")
    assert {int(val.id(i)[:2]) // 4 % 5 for i in range(len(val))} == {4}
    assert {val.classes[label] for label in val.targets} == {"dark", "red"}
    assert set(pcr_exp.open(folder / "val", label="part").records.index.classes) == {"kind", "part"}
    prepare(compose("prepare", *given, "records.on_error=skip", "check=content"))


def test_quality_is_measured_of_the_images_of_a_table(table: Path, tmp_path: Path) -> None:
    asked = [f"out={tmp_path}/quality", "groups=[1,10]", "max_images=4", "split=val", "num_workers=1"]
    assert quality(compose("quality", *settings(table, tmp_path), *asked)) == "finished"
    rows = pd.read_csv(tmp_path / "quality" / "quality.csv", dtype={"id": str})
    in_val = {f"{i:02}.jpg" for i in range(NUM) if i // 4 % 5 == 4}
    assert len(rows) == 8 and set(rows["id"]) <= in_val
    means = rows.groupby("group")["ms_ssim"].mean()
    assert means[1] < means[10] == 1


def test_training_on_records_with_fields_reads_images_alone(table: Path, tmp_path: Path) -> None:
    """Two epochs with a cache and echoing deliver the bytes of the images alone, as without fields.

    How many come from the cache depends on read-ahead: an epoch may begin to read before they are cached.
    """
    quick = ["training=debug", "training.num_threads=1", "training.epochs=2", "loader.num_workers=0"]
    quick += ["echo=batch", "storage.cache=memory", "storage.cache_mib=4", "scan=group_2"]
    beside = ["dataset.columns.text=kind", "records.fields=[text]"]
    delivered = []
    for name, more in (("beside", beside), ("alone", [])):
        given = settings(table, tmp_path, "kind", "class", f"runs_root={tmp_path}/{name}", *more)
        folder = run_training(compose("train", *given, *quick), progress=False).folder
        last = read_rows(folder / "rows.jsonl")[-1]
        assert last["cached_bytes"] + last["bytes_read"] == last["record_bytes"]
        assert last["cached_bytes"] > 0
        delivered.append(last["record_bytes"])
    opened = [pcr_exp.open(folder / "train") for folder in (tmp_path / "records").iterdir()]
    assert sorted(len(one.records.index.fields) for one in opened) == [0, 1]
    assert delivered[0] == delivered[1]


def test_a_changed_table_is_noticed(table: Path, tmp_path: Path) -> None:
    own = table.with_name("own.csv")
    own.write_text(table.read_text())
    prepare(compose("prepare", *settings(own, tmp_path)))
    own.write_text(own.read_text().replace("47.jpg,red", "47.jpg,dark"))
    with pytest.raises(RecordError, match=r"1 with other labels or in another split: 47.jpg"):
        prepare(compose("prepare", *settings(own, tmp_path)))


@pytest.mark.parametrize(
    ("task", "label", "kind", "metrics", "guessed"),
    [
        ("multilabel", "tags", "several", {"val_mean_ap", "val_average_precision"}, 0.5),
        ("regression", "redness", "number", {"val_r2", "val_mae"}, None),
    ],
)
def test_a_run_is_judged_by_its_task(
    table: Path, tmp_path: Path, task: str, label: str, kind: str, metrics: set[str], guessed: float | None
) -> None:
    given = settings(table, tmp_path, label, kind, f"task={task}", f"runs_root={tmp_path}/runs")
    quick = ["training=debug", "training.num_threads=1", "training.batch_size=8", "loader.num_workers=0"]
    quick += ["training.epochs=1", "model=shufflenet_v2_x0_5", "scan=group_2"]
    folder = run_training(compose("train", *given, *quick), progress=False).folder
    row = read_rows(folder / "rows.jsonl")[-1]
    assert metrics <= row.keys() and "val_top1" not in row
    manifest = read_manifest(folder / "manifest.json")
    assert manifest.num_classes == (2 if kind == "several" else 1)
    assert manifest.majority_share == guessed and f"val_{manifest.headline}" in metrics
    assert not (folder / "predictions.npz").exists()
    with pytest.raises(ConfigError, match=r"task=regression: 'dark' is not a number"):
        run_training(compose("train", *settings(table, tmp_path / "x"), *quick, "task=regression"))


@pytest.mark.parametrize(
    ("task", "label", "kind"), [("multilabel", "tags", "several"), ("regression", "redness", "number")]
)
def test_scores_of_a_task_are_those_of_scikit_learn(
    table: Path, tmp_path: Path, task: str, label: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    given = settings(table, tmp_path, label, kind, f"task={task}", "loader.num_workers=0")
    quick = ["training=debug", "training.num_threads=1", "training.epochs=2", "scan=group_2"]
    quick += ["training.learning_rate=0.001"]
    runs = f"runs_root={tmp_path}/runs"
    folder = run_training(compose("train", *given, *quick, runs), progress=False).folder
    last = read_rows(folder / "rows.jsonl")[-1]
    asked = [f"runs=[{folder}]", f"out={tmp_path}/scored", "groups=[1,10]"]
    assert evaluate(compose("evaluate", *given, *asked)) == "finished"
    scores = pd.read_csv(tmp_path / "scored" / "scores.csv")
    levels = pd.read_csv(tmp_path / "scored" / "levels.csv").set_index(["encoding", "group"])
    for level, images in scores.groupby(["encoding", "group"]):
        row = levels.loc[level]
        if kind == "several":
            names = ["blue", "red"]
            has, said = (images[[f"{start} {name}" for name in names]] for start in ("has", "score of"))
            assert row["mean_ap"] == pytest.approx(metrics.average_precision_score(has, said))
            continue
        assert row["r2"] == pytest.approx(metrics.r2_score(images["wanted"], images["said"]))
        assert row["mae"] == pytest.approx(metrics.mean_absolute_error(images["wanted"], images["said"]))
        assert set(images["wanted"]) <= {i / 10 for i in range(NUM)}
    headline = {"several": "mean_ap", "number": "r2"}[kind]
    whole = levels.loc["baseline", 0]
    assert whole[headline] == pytest.approx(last[f"val_{headline}"], rel=1e-5)
    assert whole[f"{headline}_difference"] == whole[f"{headline}_ci95"] == 0
    lost = levels[headline] - whole[headline]
    assert levels[f"{headline}_difference"].to_numpy() == pytest.approx(lost.to_numpy())
    shown = capsys.readouterr().out
    assert ("mean absolute error" in shown) is (kind == "number") and "against the originals" in shown
    assert (tmp_path / "scored" / "losses.png").exists()
    with pytest.raises(ConfigError, match=f"classes='x': wanted null with task={task}"):
        evaluate(compose("evaluate", *given, *asked, "classes=x"))


@pytest.mark.parametrize(
    ("task", "label", "kind", "words"),
    [
        ("multilabel", "tags", "several", "2 classes, several of an image; .* guessing reaches .*on average"),
        ("regression", "redness", "number", r"a number; .*ridge regression.* guessing reaches 0.0%\. Losses"),
    ],
)
def test_what_a_task_tolerates_is_answered(
    table: Path, tmp_path: Path, task: str, label: str, kind: str, words: str
) -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="pip install 'pcr-exp[pretrained]'")
    names = [f"out={tmp_path}/out", f"features_root={tmp_path}/features", f"task={task}"]
    small = ["image_size=32", "groups=[1,10]", "num_resamples=100", "num_folds=3", "num_inner_folds=2"]
    given = [word for word in settings(table, tmp_path, label, kind) if not word.startswith("records")]
    assert study.tolerance(compose("tolerance", *given, *names, *small, "strengths=[0.01,0.1]")) == "finished"
    facts = json.loads((tmp_path / "out" / "tolerance.json").read_text())["facts"]
    assert facts["headline"] == {"several": "mean_ap", "number": "r2"}[kind]
    assert re.search(words, (tmp_path / "out" / "tolerance.md").read_text())
    levels = pd.read_csv(tmp_path / "out" / "matrix.csv")
    assert levels[f"{facts['headline']}"].iloc[-1] > 0.4, "a frozen network sees how red a picture is"
    assert ("classes" in facts["dataset"]) is (kind == "several")


def test_another_value_in_the_same_place_among_all_is_noticed(table: Path, tmp_path: Path) -> None:
    """A corrected value is noticed even if it keeps its rank among all values, which records store."""
    own = tmp_path / "own"
    shutil.copytree(table.parent, own)
    given = settings(own / table.name, tmp_path, "redness", "number")
    prepare(compose("prepare", *given))
    text = (own / table.name).read_text()
    assert text.count(",0.7,") == 1
    (own / table.name).write_text(text.replace(",0.7,", ",0.75,"))
    with pytest.raises(RecordError, match="1 with other labels"):
        prepare(compose("prepare", *given))
    prepare(compose("prepare", *given, "records.on_change=reencode"))
    prepare(compose("prepare", *given))


def test_a_cell_that_is_no_path_is_a_bad_row(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "00.jpg"), np.zeros((40, 40, 3), dtype=np.uint8))
    (tmp_path / "labels.csv").write_text("path,label\n" + "x" * 300 + ",a\n00.jpg,a\n")
    given = [
        "dataset=table",
        f"dataset.table={tmp_path / 'labels.csv'}",
        f"records.root={tmp_path / 'records'}",
    ]
    with pytest.raises(DatasetError, match="1 of 2 rows"):
        prepare(compose("prepare", *given))
