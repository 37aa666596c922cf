"""Titles name the input size and distinguishing settings; legends mark levels whose repeats read more."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from pcr_exp.analysis.accuracy import few_levels, per_panel
from pcr_exp.analysis.distinguishing import (
    describe_differences,
    describe_settings,
    titles_apart,
    with_settings,
)
from pcr_exp.analysis.figure import MAX_CURVES
from pcr_exp.analysis.frame import SCAN_AND_SEED, eval_curves, run_frame, setting_keys
from pcr_exp.analysis.report import write_report
from pcr_exp.analysis.runs import read_runs
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.loading.echo.variants import ExampleBeforeConfig
from pcr_exp.runs.identity import scientific_part

MakeRun = Callable[..., Path]


def test_settings_are_told_apart_by_words_and_not_by_hashes(tmp_path: Path, make_run: MakeRun) -> None:
    for decode in ("scaled", "libjpeg"):
        for scan in ("baseline", "group_2"):
            make_run(tmp_path, scan, more={"loader": LoaderConfig(decode=decode)})
    frame = run_frame(read_runs(tmp_path))
    curves = with_settings(eval_curves(frame), frame)
    assert set(curves["image_px"]) == {64} and set(curves["told_apart"]) == {
        "decode=scaled",
        "decode=libjpeg",
    }
    panels = list(per_panel(curves))
    assert {title for title, _, _ in panels} == {"photos · photo · resnet18 · 64 px"}
    assert sorted(words.rpartition(", ")[2] for _, words, _ in panels) == ["decode=libjpeg", "decode=scaled"]
    assert not any("setting" in words for _, words, _ in panels)


def test_no_two_sections_of_a_page_have_one_title(tmp_path: Path, make_run: MakeRun) -> None:
    for decode in ("scaled", "libjpeg"):
        make_run(tmp_path / "runs", "group_2", more={"loader": LoaderConfig(decode=decode)})
    write_report(tmp_path / "runs", tmp_path / "none", tmp_path / "out")
    titles = re.findall("^### .*", (tmp_path / "out" / "summary.md").read_text(), re.MULTILINE)
    assert sorted(title.rpartition(" · ")[2] for title in titles) == ["decode=libjpeg", "decode=scaled"]


def test_sections_that_nothing_tells_apart_have_the_settings_key() -> None:
    sections = [("a", {"storage": "hdd", "setting": key}) for key in ("11", "22", "33")]
    words = {"11": "as it is", "22": "as it is", "33": "decode=scaled"}
    assert titles_apart(sections, words) == [
        *("a · as it is · setting 11", "a · as it is · setting 22", "a · decode=scaled")
    ]
    assert titles_apart(sections[:1]) == ["a"]


def words_but(root: Path, less: tuple[str, ...]) -> set[str]:
    """Return the descriptions of all settings on a page that compares the keys `less`."""
    frame = run_frame(read_runs(root))
    return set(describe_settings(frame.assign(setting=setting_keys(frame, less)), less).values())


def test_words_leave_out_what_a_table_compares(tmp_path: Path, make_run: MakeRun) -> None:
    for rate in (0.1, 0.2):
        make_run(tmp_path, "group_2", learning_rate=rate, seed=int(10 * rate))
    assert words_but(tmp_path, SCAN_AND_SEED) == {"learning_rate=0.1", "learning_rate=0.2"}
    assert words_but(tmp_path, ("scan", "seed", "training.learning_rate")) == {""}
    make_run(tmp_path, "group_5", learning_rate=0.2, seed=2)
    words = words_but(tmp_path, ("seed", "training.learning_rate"))
    assert words == {"scan=group_2", "scan=group_5"}, "a table that does not compare levels names them"


def test_crops_of_a_dataset_tell_settings_apart(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_2")
    (run,) = read_runs(tmp_path)
    configs = {}
    for low in (0.08, 0.5):
        augment = {**run.config["dataset"]["augment"], "crop_scale": [low, 1.0]}
        configs[str(low)] = {**run.config, "dataset": {**run.config["dataset"], "augment": augment}}
    sciences = {low: scientific_part(config) for low, config in configs.items()}
    assert describe_differences(sciences) == {
        "0.08": "crop_scale=[0.08, 1.0]",
        "0.5": "crop_scale=[0.5, 1.0]",
    }


def test_a_level_that_reads_on_is_called_so(tmp_path: Path, make_run: MakeRun) -> None:
    reads_on = ExampleBeforeConfig(name="example_before", factor=2, buffer=256, repeat_groups=[5])
    make_run(tmp_path, "group_2", echo=reads_on)
    make_run(tmp_path, "group_2", seed=1)
    frame = run_frame(read_runs(tmp_path))
    frame = with_settings(frame, frame)
    assert set(frame["scan"]) == {"group_2 then 5", "group_2"}
    assert set(frame["told_apart"]) == {"echo=example_before", "as it is"}


def test_one_setting_alone_needs_no_words_and_no_rows_none(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_2")
    (run,) = read_runs(tmp_path)
    assert describe_differences({"a": scientific_part(run.config)}) == {"a": ""}
    empty = with_settings(eval_curves(run_frame([])), run_frame([]))
    assert empty.empty and {"image_px", "told_apart"} <= set(empty.columns)


def test_options_of_one_name_are_told_apart_by_what_differs(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_2")
    (run,) = read_runs(tmp_path)
    configs = {
        factor: {**run.config, "echo": asdict(ExampleBeforeConfig(name="example_before", factor=factor))}
        for factor in (2.0, 4.0)
    }
    found = describe_differences({str(factor): scientific_part(config) for factor, config in configs.items()})
    assert found == {"2.0": "echo=example_before, factor=2.0", "4.0": "echo=example_before, factor=4.0"}


def a_level(scan: str, group: float, encoding: str = "pcr") -> dict[str, object]:
    return {"scan": scan, "group": group, "encoding": encoding}


def test_more_levels_than_a_panel_holds_are_several_panels() -> None:
    policies = [a_level(name, float("nan")) for name in ("balanced", "cosine", "mixture", "mssim", "plateau")]
    static = [a_level("baseline", 1, "baseline"), *(a_level(f"group_{g}", g) for g in (1, 2, 5, 10))]
    rows = pd.DataFrame([*static, *policies])
    parts = few_levels("title", "words", rows)
    assert [part["scan"].tolist() for _, _, part in parts] == [
        [level["scan"] for level in static],
        ["baseline", *(level["scan"] for level in policies)],
    ]
    assert all(part["scan"].nunique() <= MAX_CURVES for _, _, part in parts)
    ((_, _, alike),) = few_levels("title", "words", rows.head(5))
    pd.testing.assert_frame_equal(alike, rows.head(5))


@pytest.mark.parametrize("num_groups", [7, 10])
def test_many_static_levels_are_several_panels_too(num_groups: int) -> None:
    rows = pd.DataFrame([a_level(f"group_{group}", group) for group in range(1, num_groups + 1)])
    parts = [part["scan"].tolist() for _, _, part in few_levels("", "", rows)]
    assert [scan for part in parts for scan in part] == rows["scan"].tolist()
    assert max(map(len, parts)) <= MAX_CURVES
