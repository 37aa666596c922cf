"""Claims: the rule of verdicts, numbers out of committed files, and the committed table made again."""

import math
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from composing import compose

from pcr_exp.analysis.claims.claim import READ, TRAINED_TOO_LITTLE, Claim, judge
from pcr_exp.analysis.claims.committed import (
    EXACT,
    NONE,
    Committed,
    Measured,
    all_of,
    exactly,
    mean_of,
    three_values,
)
from pcr_exp.analysis.claims.page import (
    BEGIN,
    END,
    PAGE,
    SHORT,
    SYSTEMS,
    TABLE,
    with_short_table,
    write_claims,
)
from pcr_exp.analysis.claims.pcr_accuracy import difference_points, time_to_accuracy_at_group_5
from pcr_exp.analysis.claims.verdict import (
    FAILS,
    HOLDS,
    IN_PART,
    NOT_HERE,
    NOT_YET,
    UNDECIDED,
    VERDICTS,
    Range,
    around,
    at_least,
    at_most,
    verdict,
    verdict_of_stand_in,
    verdict_over_cases,
)
from pcr_exp.errors import RunError

RESULTS = Path(__file__).parents[2] / "results"
CLAIMS = [claim for _, claims in SYSTEMS for claim in claims]


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (2.1, 2.5, HOLDS),
        (2.0, 2.0, HOLDS),
        (1.8, 2.2, IN_PART),
        (1.1, 1.3, IN_PART),
        (0.9, 1.1, FAILS),
        (0.5, 0.6, FAILS),
        (0.9, 2.1, UNDECIDED),
        (math.nan, math.nan, UNDECIDED),
    ],
)
def test_a_verdict_is_where_the_whole_interval_lies(low: float, high: float, wanted: str) -> None:
    """Published 2 x, anything above 1 x in part."""
    assert verdict(low, high, at_least(2), at_least(1)) == wanted


def test_without_a_part_a_claim_holds_or_does_not() -> None:
    assert verdict(0.4, 0.6, at_most(0.5)) == UNDECIDED
    assert verdict(0.6, 0.7, at_most(0.5)) == FAILS
    assert verdict(0.9, 1.1, around(1, 0.1)) == HOLDS
    assert verdict(1.11, 1.2, around(1, 0.1)) == FAILS


@pytest.mark.parametrize(
    ("verdicts", "wanted"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([FAILS, FAILS], FAILS),
        ([HOLDS, FAILS], IN_PART),
        ([HOLDS, UNDECIDED], IN_PART),
        ([IN_PART, UNDECIDED], IN_PART),
        ([FAILS, UNDECIDED], FAILS),
        ([UNDECIDED], UNDECIDED),
    ],
)
def test_cases_give_one_verdict(verdicts: list[str], wanted: str) -> None:
    assert verdict_over_cases(verdicts) == wanted


def test_what_only_stands_for_an_experiment_neither_proves_nor_refutes() -> None:
    assert [verdict_of_stand_in(found) for found in (HOLDS, IN_PART, FAILS, UNDECIDED)] == [
        *(IN_PART, IN_PART, UNDECIDED, UNDECIDED),
    ]


def test_ranges_say_what_they_are() -> None:
    assert [str(each) for each in (at_least(2), at_most(0.5), around(1, 0.1), Range(1, 3))] == [
        *("at least 2", "at most 0.5", "0.9 to 1.1", "1 to 3"),
    ]


def test_intervals_are_of_what_scatters() -> None:
    assert exactly("", 3.0) == Measured("", 3.0, 3.0, 3.0, 1, EXACT)
    alone = mean_of("", [3.0])
    assert alone.interval == NONE and math.isnan(alone.low)
    two = mean_of("", [1.0, 3.0])
    assert two.high - 2 == pytest.approx(12.706, abs=1e-3), "Student's t of one degree of freedom"
    assert all_of("", [4.0, 1.0, 2.0]) == Measured("", 2.0, 1.0, 4.0, 3, "smallest to largest")


def test_mean_ends_and_number_say_three_values() -> None:
    row = pd.Series({"x_mean": 2.0, "x_min": 1.0, "x_max": 2.7, "n": 3})
    assert three_values(row, "x") == pytest.approx([1.0, 2.3, 2.7])
    renamed = row.rename({"x_mean": "x"})
    assert three_values(renamed, "x") == pytest.approx([1.0, 2.3, 2.7])
    assert three_values(row.replace(3, 2), "x") == [1.0, 2.7]
    with pytest.raises(RunError, match="x: n = 4; wanted at most 3"):
        three_values(pd.Series({"x_mean": 2.0, "x_min": 1.0, "x_max": 2.7, "n": 4}), "x")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_rows_that_are_not_there_are_named(tmp_path: Path) -> None:
    write(tmp_path / "set" / "table.csv", "scan,x\na,1\na,2\n")
    committed = Committed(tmp_path)
    with pytest.raises(RunError, match=r"table.csv has no rows with scan == 'b'"):
        committed.rows("set/table.csv", "scan == 'b'")
    with pytest.raises(RunError, match=r"table.csv has 2 rows with scan == 'a'; wanted one"):
        committed.row("set/table.csv", "scan == 'a'")


def test_hardware_is_what_the_files_say(tmp_path: Path) -> None:
    write(tmp_path / "a" / "table.csv", "hardware\nGPU\n")
    write(tmp_path / "b" / "c" / "table.csv", "x\n1\n")
    committed = Committed(tmp_path)
    assert committed.hardware("a/table.csv") == "GPU"
    with pytest.raises(RunError, match=r"no column, JSON file or made_by\.yaml says on what hardware"):
        committed.hardware("b/c/table.csv")
    write(tmp_path / "made_by.yaml", "b: {hardware: 'a laptop, 2 cores'}")
    assert committed.hardware("b/c/table.csv") == "a laptop, 2 cores"
    write(tmp_path / "b" / "c" / "table.json", '{"cpu": "Xeon", "num_cores": 2}')
    assert committed.hardware("b/c/table.csv") == "Xeon, 2 cores"


def test_a_difference_waits_for_the_runs_of_every_group(tmp_path: Path) -> None:
    row = "cars,group_1,-0.02,0.01,3"
    write(tmp_path / "a.csv", f"dataset,scan,difference_mean,difference_ci95,difference_n\n{row}\n")
    (found,) = difference_points("cars", 1)(Committed(tmp_path), "a.csv")
    assert (found.value, found.high, found.n) == (-2, -1, 3)
    assert difference_points("cars", 1, 2)(Committed(tmp_path), "a.csv") == []


def test_time_to_accuracy_is_of_storage_that_limits_and_of_targets_that_all_reached(tmp_path: Path) -> None:
    """Of images of 1 MiB, of which 2/s can be trained on: limited at 1 MiB/s, and not at 4."""
    head = "scan,bandwidth_mib_per_s,image_bytes,free_images_per_s,speedup,speedup_low,speedup_high,n\n"
    rows = [
        "group_5,1,1048576,2,1.9,1.8,2,3",
        "group_5,4,1048576,2,1,0.9,1.1,3",
        "group_5,0.5,1048576,2,,,,3",
    ]
    write(tmp_path / "a.csv", head + "\n".join(rows) + "\n")
    (found,) = time_to_accuracy_at_group_5(Committed(tmp_path), "a.csv")
    assert (found.case, found.value, found.low, found.high, found.n) == ("1 MiB/s, projected", 1.9, 1.8, 2, 3)


def claim(**more: Any) -> Claim:
    settings: dict[str, Any] = {
        "name": "n",
        "says": "s",
        "source": "f",
        "published": "2 x",
        "certainty": READ,
        "shown_in": "",
        "file": "set/table.csv",
        "measure": lambda committed, file: [mean_of("", committed.rows(file)["x"])],
        "holds": at_least(2),
        "partly": at_least(1),
    }
    return Claim(**(settings | more))


def test_a_claim_is_judged_by_its_file(tmp_path: Path) -> None:
    write(tmp_path / "set" / "table.csv", "x,hardware\n2.5,CPU\n2.6,CPU\n2.5,CPU\n")
    (row,) = judge(claim(), Committed(tmp_path))
    assert (row["verdict"], row["n"], row["interval"], row["hardware"]) == (HOLDS, 3, "95 %", "CPU")
    (row,) = judge(claim(stands_in="frozen features"), Committed(tmp_path))
    assert row["verdict"] == IN_PART and "frozen features" in row["why"]
    (row,) = judge(claim(not_here="it needs a GPU"), Committed(tmp_path))
    assert (row["verdict"], row["why"]) == (NOT_HERE, "it needs a GPU")


def test_accuracy_of_too_short_a_training_gives_no_verdict(tmp_path: Path) -> None:
    write(tmp_path / "archive" / "table.csv", "x,hardware\n2.5,CPU\n2.6,CPU\n")
    short = {"file": "archive/table.csv", "holds": at_least(-50)}
    assert judge(claim(**short), Committed(tmp_path))[0]["verdict"] == HOLDS, "of what is not accuracy"
    assert judge(claim(**short, is_accuracy=True), Committed(tmp_path))[0]["verdict"] == NOT_YET


def test_a_case_may_have_a_place_of_its_own(tmp_path: Path) -> None:
    write(tmp_path / "set" / "table.csv", "x,hardware\n2.5,CPU\n")
    cases = [replace(exactly(str(low), 2.5), holds=at_least(low)) for low in (2, 3)]
    rows = judge(claim(measure=lambda *_: cases, holds=None), Committed(tmp_path))
    assert [row["of_case"] for row in rows] == [HOLDS, IN_PART]
    assert [row["holds"] for row in rows] == ["at least 2", "at least 3"]


def test_a_file_that_is_missing_is_a_test_to_come_or_an_error(tmp_path: Path) -> None:
    (row,) = judge(claim(command="python -m experiments.train"), Committed(tmp_path))
    assert row["verdict"] == NOT_YET
    with pytest.raises(RunError, match=r"claim 'n': .*table.csv is missing"):
        judge(claim(), Committed(tmp_path))


def test_the_archive_says_which_trainings_were_too_short() -> None:
    text = (RESULTS / "archive" / "README.md").read_text()
    assert [
        folder for folder in TRAINED_TOO_LITTLE if folder != "archive" and f"`{folder}`" not in text
    ] == []


def test_the_committed_table_follows_from_the_committed_files(tmp_path: Path) -> None:
    """Whoever commits other results runs `python -m experiments.report`."""
    for path in RESULTS.iterdir():
        if path.name not in (TABLE, PAGE):
            (tmp_path / path.name).symlink_to(path)
    readme = tmp_path / "my page.md"
    readme.write_text(f"Before.\n{BEGIN}\nthe table of yesterday\n{END}\nAfter.\n")
    table, page = write_claims(tmp_path, readme)
    made, committed = pd.read_csv(table), pd.read_csv(RESULTS / TABLE)
    pd.testing.assert_frame_equal(committed, made)
    assert page.read_text() == (RESULTS / PAGE).read_text()
    before, first, *_, last, after = readme.read_text().splitlines()
    assert (before, first, last, after) == ("Before.", BEGIN, END, "After.")
    assert readme.read_text().split(f"{BEGIN}\n")[1].split(f"\n{END}")[0] in page.read_text()
    assert "yesterday" not in readme.read_text()
    with pytest.raises(RunError, match="no place for the table of claims: wanted lines <!-- claims"):
        with_short_table("Before. After.", committed)


def test_claims_are_of_all_four_papers_and_each_has_its_source() -> None:
    table = pd.read_csv(RESULTS / TABLE, keep_default_na=False)
    assert table.groupby(["system", "claim"]).ngroups == len(CLAIMS) >= 25
    assert table["system"].nunique() == 4
    assert set(table["verdict"]) <= set(VERDICTS)
    assert (table[["says", "source", "published", "certainty", "why"]] != "").all(axis=None)
    tested = table[table["value"] != ""]
    assert (tested[["n", "interval", "hardware", "file", "shown_in", "holds"]] != "").all(axis=None)
    waiting = table[table["verdict"] == NOT_YET]
    assert (waiting[["command", "cost"]] != "").all(axis=None)
    assert not table["file"][table["verdict"] != NOT_YET].str.startswith("archive").any()


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (RESULTS / PAGE).read_text())
    assert len(links) > 25
    assert [link for link in links if not (RESULTS / link).exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted({claim.command for claim in CLAIMS if claim.command}))
def test_every_command_composes(command: str) -> None:
    words = shlex.split(command)
    runner = next(word for word in words if word.startswith("experiments.")).removeprefix("experiments.")
    overrides = [word for word in words[words.index(f"experiments.{runner}") + 1 :] if word != "-m"]
    assert compose(runner, *(re.sub(r"^([^=]+=[^,\[]*),.*$", r"\1", word) for word in overrides)) is not None


def test_the_page_begins_with_the_headlines() -> None:
    first = (RESULTS / PAGE).read_text().split("## How")[0]
    lines = [line for line in first.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(SHORT)
