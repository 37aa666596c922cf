"""Equal bytes in different ways: which runs match a budget, and what they are compared with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments.pcr.equal_bytes import draw_equal_bytes, equal_bytes_table, write_equal_bytes
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.page import Output
from pcr_exp.analysis.runs import read_runs
from pcr_exp.policies.schedule import MixtureConfig

pytestmark = pytest.mark.usefixtures("light_figures")
MakeRun = Callable[..., Path]
HALF = {"record_bytes": 6 * 64_000 // 2}


def made(make_run: MakeRun, root: Path, scan: str, num_train: int = 64, **settings: Any) -> None:
    """Write runs of two seeds; their manifests have the number and the key of their training images."""
    for seed in (0, 1):
        folder = make_run(root / f"{scan}_{num_train}_{len(settings['top1'])}", scan, seed=seed, **settings)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest |= {"num_train": num_train, "images_key": f"{num_train:016d}"}
        manifest["run_id"] += f"-{num_train}"
        (folder / "manifest.json").write_text(json.dumps(manifest))
        folder.rename(folder.with_name(manifest["run_id"]))


@pytest.fixture
def frame(tmp_path: Path, make_run: MakeRun) -> pd.DataFrame:
    made(make_run, tmp_path, "baseline", top1=(0.1,) * 5 + (0.8,))
    made(make_run, tmp_path, "baseline", top1=(0.1, 0.2, 0.6))
    made(make_run, tmp_path, "baseline", 32, top1=(0.1,) * 5 + (0.5,), columns=HALF)
    made(make_run, tmp_path, "group_5", top1=(0.1,) * 5 + (0.7,), columns=HALF)
    made(make_run, tmp_path, "group_2", top1=(0.1,) * 5 + (0.3,), columns={"record_bytes": 5 * 64_000})
    return run_frame([run for folder in sorted(tmp_path.iterdir()) for run in read_runs(folder)])


def test_ways_of_a_budget_are_compared_with_the_whole(frame: pd.DataFrame) -> None:
    table = equal_bytes_table(frame).set_index("way")
    assert list(table.index) == ["whole", "3 epochs", "50 % of the images", "group 5"]
    assert table["budget"].tolist() == [1, 0.5, 0.5, 0.5], "five sixths of the bytes are of no budget"
    assert table["bytes_share"].tolist() == [1, 0.5, 0.5, 0.5]
    assert table["difference_mean"].tolist() == pytest.approx([0, -0.2, -0.3, -0.1])
    assert set(table["n"]) == {2} and table["num_train"].tolist() == [64, 64, 32, 64]


def test_every_metric_is_compared_over_the_repeats_that_ways_have(
    frame: pd.DataFrame, tmp_path: Path, make_run: MakeRun
) -> None:
    """A third seed of the whole training has no counterpart, and is left out."""
    make_run(tmp_path / "third", "baseline", seed=2, top1=(0.1,) * 5 + (0.2,))
    runs = pd.concat([frame, run_frame(read_runs(tmp_path / "third"))], ignore_index=True)
    runs["rows"] = [
        [row | ({"val_auc": row["val_score"] / 2} if row["kind"] == "eval" else {}) for row in rows]
        for rows in runs["rows"]
    ]
    table = equal_bytes_table(runs)
    of_auc = table[table["headline"] == "auc"]
    assert of_auc["difference_mean"].tolist() == pytest.approx([0, -0.1, -0.15, -0.05])
    assert set(table["headline"]) == {"top1", "auc"} and set(table["n"]) == {2} and len(table) == 8
    labels = [ax.get_xlabel() for ax in draw_equal_bytes(table).axes]
    assert labels == ["points of top-1", "points of AUC"], "a panel per metric, of the one budget"


def test_each_dataset_is_compared_by_the_metrics_and_budgets_that_it_has(
    frame: pd.DataFrame, tmp_path: Path, make_run: MakeRun
) -> None:
    other = tmp_path / "other"
    made(make_run, other, "baseline", top1=(0.1,) * 5 + (0.8,))
    made(make_run, other, "baseline", top1=(0.1, 0.2, 0.6))
    made(make_run, other, "group_5", top1=(0.1,) * 5 + (0.7,), columns=HALF)
    made(make_run, other, "group_2", top1=(0.1,) * 5 + (0.6,), columns={"record_bytes": 6 * 64_000 // 4})
    runs = run_frame([run for folder in other.iterdir() for run in read_runs(folder)]).assign(dataset="other")
    for evaluation in (row for rows in runs["rows"] for row in rows if row["kind"] == "eval"):
        evaluation["val_auc"] = evaluation["val_score"]
    table = equal_bytes_table(pd.concat([frame, runs], ignore_index=True))
    metrics = {dataset: list(rows["headline"].unique()) for dataset, rows in table.groupby("dataset")}
    assert metrics.pop("other") == ["top1", "auc"] and list(metrics.values()) == [["top1"]]
    shown = [ax.get_xlabel() for ax in draw_equal_bytes(table).axes if ax.axison]
    assert sorted(shown) == ["points of AUC"] * 2 + ["points of top-1"] * 3, "one has no quarter"


def test_a_mixture_is_named_by_its_shares(frame: pd.DataFrame, tmp_path: Path, make_run: MakeRun) -> None:
    mixture = MixtureConfig(name="mixture", group=2, candidates=[2, 5], weights=[2.6, 1])
    made(make_run, tmp_path, "mixture", top1=(0.1,) * 5 + (0.75,), columns=HALF, more={"scan": mixture})
    mixed = run_frame(read_runs(tmp_path / "mixture_64_6"))
    table = equal_bytes_table(pd.concat([frame, mixed], ignore_index=True)).set_index("way")
    assert table.loc["72 % at group 2, 28 % at group 5", "difference_mean"] == pytest.approx(-0.05)


def test_the_page_is_of_runs_with_several_ways_alone(frame: pd.DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    output = Output(frame, out)
    write_equal_bytes(output)
    page = (out / "equal_bytes.md").read_text()
    assert "| 50 % | group 5 | 2 | 64 | 6 | 0.2 MB | 70.0% | -10.0" in page
    assert "| 100 % | whole | 2 | 64 | 6 | 0.4 MB | 80.0% | - |" in page and len(output.figures) == 3
    for less in (frame[frame["scan"] != "baseline"], frame[frame["scan"].isin(["group_5", "group_2"])]):
        assert equal_bytes_table(less).empty
    one_way = frame[(frame["num_train"] == 64) & (frame["scan"] != "group_5")]
    assert equal_bytes_table(one_way).empty, "a budget with one way compares nothing"
