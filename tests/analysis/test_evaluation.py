"""Evaluation tables against numbers computed by hand, and figures drawn from the files alone."""

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from pcr_exp.analysis.evaluation import (
    TABLE_COLUMNS,
    check_primary_metric,
    draw_evaluation,
    draw_losses,
    level_table,
    matrix_table,
    write_evaluation,
)
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.evaluation import levels_of

pytestmark = pytest.mark.usefixtures("light_figures")
RESULTS = Path(__file__).parents[2] / "results"
SETTINGS = {
    "dataset": "birds",
    "label": "kind",
    "split": "val",
    "model": "net",
    "image_size_px": 64,
    "headline": "top1",
}
HITS = {("baseline", 1): [1, 1, 1, 0], ("pcr", 1): [0, 1, 0, 0], ("pcr", 10): [1, 1, 1, 0]}


def scores(model: str = "net", trained_on: str = "published", seed: int = 0) -> pd.DataFrame:
    rows = [
        {
            "model": model,
            "trained_on": trained_on,
            "seed": seed,
            "encoding": encoding,
            "group": group,
            "scan": "baseline" if encoding == "baseline" else f"group_{group}",
            "decode": "unsmoothed",
            "image": image,
            "label": int(image == 3),
            "top1": hit,
            "top5": 1,
            "loss": 1.0 - hit,
        }
        for (encoding, group), hits in HITS.items()
        for image, hit in enumerate(hits)
    ]
    return pd.DataFrame(rows)


def test_differences_are_of_pairs_of_one_image() -> None:
    table = level_table(scores().sample(frac=1, random_state=0))
    assert list(table.columns) == TABLE_COLUMNS
    rows = table.set_index("scan")
    first = rows.loc["group_1"]
    assert (first["n"], first["top1"], first["top1_difference"], first["loss_difference"]) == (
        4,
        0.25,
        -0.5,
        0.5,
    )
    low, high = stats.ttest_1samp([-1, 0, -1, 0], 0).confidence_interval(0.95)
    assert first["top1_ci95"] == pytest.approx((high - low) / 2)
    assert first["balanced_accuracy"] == pytest.approx((1 / 3 + 0) / 2)
    assert rows.loc["group_10", "top1_difference"] == rows.loc["baseline", "top1_ci95"] == 0


def test_the_matrix_is_a_mean_over_seeds() -> None:
    second = scores("b", "group_1", 1)
    second["top1"] = 0
    table = level_table(pd.concat([scores("a", "group_1", 0), second, scores("c", "baseline", 0)]))
    matrix = matrix_table(table, "top1").set_index(["trained_on", "scan"])
    cell = matrix.loc["group_1", "group_10"]
    assert (cell["n_seeds"], cell["score"], cell["score_min"], cell["score_max"]) == (2, 0.375, 0, 0.75)
    assert matrix.loc["baseline", "group_10"]["n_seeds"] == 1


def test_the_matrix_counts_every_network_of_a_seed() -> None:
    """Networks of one seed may differ in fold or learning rate; each one counts."""
    table = level_table(pd.concat([scores("a", "group_1", 0), scores("b", "group_1", 0)]))
    assert (matrix_table(table, "top1")["n_seeds"] == 2).all()


@pytest.mark.parametrize("several", [False, True])
def test_table_and_figures_follow_from_the_files(tmp_path: Path, several: bool) -> None:
    rows = (
        [scores()] if not several else [scores("a", "baseline"), scores("b", "group_1"), scores("c", "mssim")]
    )
    files = write_evaluation(tmp_path, pd.concat(rows), SETTINGS, torch.device("cpu"))
    name = "matrix" if several else "losses"
    wanted = {
        "scores.csv",
        "evaluation.json",
        "levels.csv",
        *(f"{name}.{end}" for end in ("pdf", "png", "csv")),
    }
    assert {path.name for path in files} == wanted
    before = {path.name: path.read_bytes() for path in files}
    for path in draw_evaluation(tmp_path):
        assert path.read_bytes() == before[path.name], path.name
    assert np.isfinite(pd.read_csv(tmp_path / "levels.csv")["top1_ci95"]).all()


def test_panels_have_one_scale_on_which_every_point_lies() -> None:
    worse = scores().assign(decode="scaled")
    worse.loc[worse["encoding"] == "pcr", ["top1", "top5"]] = 0
    table = level_table(pd.concat([scores(), worse[worse["encoding"] == "pcr"]]))
    figure = draw_losses(table)
    mild, bad = figure.axes
    assert mild.get_ylim() == bad.get_ylim()
    assert mild.get_ylim()[0] < -100
    assert {"-1", "+1"} <= {tick.get_text() for tick in mild.get_yticklabels()}, "one point decides"


def test_the_baseline_is_no_group_1() -> None:
    assert [level.columns["group"] for level in levels_of([1], ["scaled"])] == [0, 1]
    older = scores().assign(group=1)
    assert level_table(older).set_index("encoding")["group"].to_dict() == {"baseline": 0, "pcr": 1}


def test_a_headline_that_scores_do_not_make() -> None:
    for name in ("top1", "balanced_accuracy", "auc"):
        check_primary_metric(name)
    with pytest.raises(
        ConfigError, match="task: evaluations have no column for its primary metric doubt; wanted task="
    ):
        check_primary_metric("doubt")


def test_auc_is_of_the_margins_and_in_the_matrix(tmp_path: Path) -> None:
    """One of three images of the first class has a larger margin than the only image of the second."""
    ranked = [
        scores(*facts).assign(margin=[0.1, 0.2, 0.9, 0.5] * 3)
        for facts in (("a", "baseline"), ("b", "group_1"))
    ]
    settings = {**SETTINGS, "headline": "auc"}
    write_evaluation(tmp_path, pd.concat(ranked), settings, torch.device("cpu"))
    assert pd.read_csv(tmp_path / "levels.csv")["auc"].tolist() == pytest.approx([2 / 3] * 6)
    assert pd.read_csv(tmp_path / "matrix.csv")["score"].tolist() == pytest.approx([2 / 3] * 6)
    assert "auc" not in level_table(scores())


@pytest.mark.parametrize("scores", sorted(RESULTS.glob("evaluate/*/scores.csv")), ids=lambda p: p.parent.name)
def test_tables_of_evaluations_follow_from_their_scores(scores: Path) -> None:
    rebuilt = pd.read_csv(StringIO(level_table(pd.read_csv(scores)).to_csv(index=False)))
    pd.testing.assert_frame_equal(pd.read_csv(scores.with_name("levels.csv")), rebuilt)
    meta = json.loads(scores.with_name("evaluation.json").read_text())
    assert meta["git_sha"] and meta["git_dirty"] is False and meta["hardware"]
