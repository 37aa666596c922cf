"""Committed results are rebuilt from their rows, and no page claims more than its rows allow."""

from collections.abc import Iterator
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from experiments.rebuild import RESULTS, rebuild
from experiments.results.made_by import made_by
from pcr_exp.analysis.figure import MAX_PNG_BYTES
from pcr_exp.analysis.runs import Run, read_runs
from pcr_exp.runs.predictions import PREDICTIONS_FILE

MADE_BY = made_by(RESULTS)
REBUILT = [folder for folder, made in MADE_BY.items() if made.pages]
PACKED = ("runs.json.gz", "rows.csv.gz")
"""Files of a packed set of runs."""
LAYERS = "activations"
"""Folder of bounds and bytes of every layer, one file per run that saved activations compressed."""
MAX_FILES, MAX_BYTES, MAX_LINES = 400, 25_000_000, 80
"""Limits on the files and bytes of results/, and on the lines of a page."""
FILES = [
    path
    for path in RESULTS.rglob("*")
    if path.is_file() and path.relative_to(RESULTS).parts[0] not in ("demo", "runs")
]
PICTURES = [path for path in FILES if path.suffix == ".png"]
OTHERS_AT_MOST = 0.05
"""Maximum share of the CPU that other processes may take if a run is to count as exclusive."""


def packed_sets() -> list[Path]:
    """Return the folders of packed runs: `runs` of a set, and `timed` of a time to a target."""
    return sorted(path.parent for folder in MADE_BY for path in folder.glob(f"*/{PACKED[0]}"))


RUN_SETS = [runs.parent for runs in packed_sets() if runs.name == "runs"]


@cache
def runs_of(folder: Path) -> list[Run]:
    """Cache `read_runs`, which validates every row."""
    return read_runs(folder)


@cache
def rebuilt(folder: Path) -> dict[str, bytes]:
    return rebuild(folder)


def name_of(folder: Path) -> str:
    return str(folder.relative_to(RESULTS))


def test_every_folder_with_files_of_a_page_is_named() -> None:
    """Nothing would rebuild a figure or a packed set in a folder without a page."""
    drawn = {path.parent for path in PICTURES}
    owners = set(REBUILT) | {folder / "traces" for folder in REBUILT}
    assert drawn <= owners, "add these to results/made_by.yaml"
    assert {runs.parent for runs in packed_sets()} <= set(REBUILT)
    assert len(RUN_SETS) >= 16 and len(REBUILT) >= 53


def test_results_are_few_small_files() -> None:
    assert len(FILES) <= MAX_FILES and sum(path.stat().st_size for path in FILES) <= MAX_BYTES
    assert not [path for path in FILES if path.suffix == ".pdf"]
    for path in RESULTS.glob("*/README.md"):
        lines = path.read_text().splitlines()
        assert len(lines) <= MAX_LINES, path
        assert [x for x in lines if x[:1] == "#" and "](" in x] == [], "Sphinx fails on them"


@pytest.mark.parametrize("picture", PICTURES, ids=name_of)
def test_a_picture_is_a_small_png_whose_rows_lie_beside_it(picture: Path) -> None:
    """The rows have the picture's name, unless another file of its folder has the same rows."""
    with Image.open(picture) as image:
        assert image.mode == "P" and picture.stat().st_size <= MAX_PNG_BYTES
    if picture.with_suffix(".csv").exists():
        return  # test_files_follow_from_the_rows compares it
    owner = next(folder for folder in picture.parents if folder in REBUILT)
    rows = pd.read_csv(BytesIO(rebuilt(owner)[str(picture.relative_to(owner).with_suffix(".csv"))]))
    others = map(pd.read_csv, picture.parent.glob("*.csv"))
    same = [other for other in others if list(other.columns) == list(rows.columns)]
    pd.testing.assert_frame_equal(rows, same[0], rtol=1e-9)


@pytest.mark.parametrize("folder", REBUILT, ids=name_of)
def test_files_follow_from_the_rows(folder: Path) -> None:
    """Pages and tables are identical; numbers in CSV files may differ in the last digits, by CPU."""
    compared = {name: data for name, data in rebuilt(folder).items() if (folder / name).exists()}
    assert compared or list(folder.glob("*.png")), "or rows of pictures, which lie under another name"
    for name, data in compared.items():
        if name.endswith(".csv"):
            found, wanted = pd.read_csv(BytesIO(data)), pd.read_csv(folder / name)
            pd.testing.assert_frame_equal(found, wanted, rtol=1e-9, obj=name)
        else:
            assert data.decode() == (folder / name).read_text(), name


@pytest.mark.parametrize("folder", REBUILT, ids=name_of)
def test_committed_figures_and_tables_of_runs_are_rebuilt(folder: Path) -> None:
    """Every committed figure, and every table or page of a set of runs, is rebuilt from rows."""
    figures = {path.stem for path in folder.glob("*.png")}
    pages = {path.stem for path in folder.glob("*.md")} - {"README"} if folder in RUN_SETS else set()
    assert figures | pages <= {Path(name).stem for name in rebuilt(folder)}


@pytest.mark.parametrize("runs", packed_sets(), ids=name_of)
def test_runs_are_packed(runs: Path) -> None:
    """A set is a few files. Each run is finished and records the share of the most frequent class."""
    assert {path.name for path in runs.iterdir()} - {LAYERS, PREDICTIONS_FILE} == set(PACKED)
    for run in runs_of(runs):
        assert run.manifest.status == "finished"
        assert run.manifest.majority_share is not None, run.manifest.run_id


@pytest.mark.parametrize("runs", packed_sets(), ids=name_of)
def test_runs_say_where_they_come_from_and_their_clocks_add_up(runs: Path) -> None:
    for run in runs_of(runs):
        manifest = run.manifest
        assert manifest.git_sha and manifest.git_dirty is False, f"{manifest.run_id}: not of a clean commit"
        assert manifest.cpu and manifest.num_cores >= 1
        last = run.rows[-1]
        split_s = sum(last[part] for part in ("train_s", "wait_s", "probe_s", "eval_s", "other_s"))
        assert split_s == pytest.approx(last["wall_s"], rel=0.01)


@pytest.mark.parametrize("folder", RUN_SETS, ids=name_of)
def test_no_table_says_more_than_its_runs_allow(folder: Path) -> None:
    """There are no seconds of unlimited storage or shared machines, nor times to targets at chance level."""
    summary = summary_of(folder)
    silent = summary["no_seconds"].notna()
    times = ["images_per_s_mean", "wait_share_mean", "time_to_target_s_mean", "speedup_over_baseline"]
    assert summary.loc[silent, times].isna().all(axis=None)
    guessed = summary[f"target_{primary_metric_of(summary)}"] <= guessed_score(summary)
    assert summary.loc[guessed, ["time_to_target_s_mean", "speedup_over_baseline"]].isna().all(axis=None)
    if (folder / "time_to_accuracy.csv").exists():
        assert pd.read_csv(folder / "time_to_accuracy.csv")["no_seconds"].isna().all()
    for page in folder.glob("*.md"):
        assert "1" not in counts_of(page), f"{page}: n = 1 without its mark"


@pytest.mark.parametrize("folder", RUN_SETS, ids=name_of)
def test_tables_have_titles_of_their_own_and_say_of_what_ms_ssim_is(folder: Path) -> None:
    for page in folder.glob("*.md"):
        titles = [line for line in page.read_text().splitlines() if line.startswith(("### ", "**"))]
        assert len(titles) == len(set(titles)), page
    summary = summary_of(folder)
    assert (summary.loc[summary["ms_ssim"].notna(), "ms_ssim_of"].notna()).all()
    measured = summary.loc[summary["ms_ssim"] < 1, "ms_ssim_of"].unique()
    assert all(f"MS-SSIM ({of})" in rebuilt(folder)["summary.md"].decode() for of in measured)
    assert (summary.loc[summary["encoding"] == "baseline", "group"] == 0).all()


def summary_of(folder: Path) -> pd.DataFrame:
    """Return the summary of a set's runs; not every folder has it as a file."""
    return pd.read_csv(BytesIO(rebuilt(folder)["summary.csv"]), keep_default_na=False, na_values=[""])


def primary_metric_of(table: pd.DataFrame) -> str:
    """Return the primary metric of a file's runs, such as `top1` for `target_top1`; for several, `score`."""
    (name,) = (name for name in table.columns if name.startswith("target_"))
    return str(name).removeprefix("target_")


def guessed_score(summary: pd.DataFrame) -> "pd.Series[float]":
    """Return the score at chance level: always predicting the most frequent class, or at random."""
    metric = summary.get("headline", pd.Series(primary_metric_of(summary), summary.index))
    of_others = (1 / summary["num_classes"]).where(metric == "balanced_accuracy", 0.5)
    return summary["majority_share"].where(metric == "top1", of_others)


def counts_of(page: Path) -> set[str]:
    """Return the cells of all columns `n` of a page's tables."""
    return {row[at] for header, row in table_rows(page) for at, name in enumerate(header) if name == "n"}


def table_rows(page: Path) -> Iterator[tuple[list[str], list[str]]]:
    header: list[str] = []
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and header:
            yield header, cells
        header = header or cells if cells else []


def test_each_group_of_a_fair_baseline_chose_one_setting() -> None:
    table = pd.read_csv(RESULTS / "fair_baseline" / "fair_baseline.csv")
    assert (table.groupby(["dataset", "label", "model"])["chosen"].sum() == 1).all()


@pytest.mark.parametrize("timed", sorted(RESULTS.glob("*/*/timed")), ids=name_of)
def test_runs_that_are_timed_have_the_machine_to_themselves(timed: Path) -> None:
    for run in runs_of(timed):
        shares = np.array([row["others_cpu_share"] for row in run.rows])
        passed_s = np.diff([row["wall_s"] for row in run.rows], prepend=0.0)
        assert (shares * passed_s).sum() / passed_s.sum() <= OTHERS_AT_MOST, run.manifest.run_id


def test_io_bound_speed_follows_the_bytes() -> None:
    """As in the demo, group 5 has at least 1.8 x the baseline's images/s; no level exceeds its byte ratio."""
    summary = pd.read_csv(RESULTS / "throughput_model" / "trainings" / "summary.csv")
    for _, rows in summary.groupby("label"):
        level = rows.set_index("scan")
        speed, size = level["images_per_s_mean"], level["mean_image_bytes"]
        assert speed["group_5"] >= 1.8 * speed["baseline"]
        for scan in ("group_1", "group_2", "group_5", "group_10"):
            assert speed[scan] / speed["baseline"] <= 1.05 * size["baseline"] / size[scan]
        assert level["wait_share_mean"]["group_1"] < 0.25, "limited by compute"


def test_the_throughput_model_is_as_right_as_it_is_said_to_be() -> None:
    """Cells limited by bandwidth, reads in flight or the model are predicted to within 5 %."""
    cells = pd.read_csv(RESULTS / "throughput_model" / "this_machine" / "predicted_vs_measured_rates.csv")
    assert set(cells["num_processes"]) == {1, 2, 4}
    tested = cells[~cells["is_calibration"] & (cells["bound"] != "decode")]
    assert len(tested) >= 50
    assert tested["error"].abs().max() <= 0.05


@pytest.mark.parametrize(("bound", "row"), [("decode", "decoding, eight repeats"), ("compute", "computing")])
def test_where_decoding_limits_the_page_says_how_wrong_the_throughput_model_is(bound: str, row: str) -> None:
    page = RESULTS / "throughput_model" / "README.md"
    cells = pd.read_csv(page.parent / "decoding" / "predicted_vs_measured_rates.csv")
    assert set(cells["n"]) == {8}
    error = cells[~cells["is_calibration"] & (cells["bound"] == bound)]["error"].abs()
    (line,) = (line for line in page.read_text().splitlines() if line.startswith(f"| {row}"))
    assert line.endswith(
        f"| {(error <= 0.05).sum()} of {len(error)} cells | {error.max():.0%} |".replace("%", " %")
    )
