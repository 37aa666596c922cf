"""Claims: the rule for verdicts, numbers from committed files, and the committed table rebuilt."""

import math
import re
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from composing import compose

from experiments.claims.claim import (
    CERTAINTIES,
    MEASURES,
    Claim,
    claim_of,
    claims_frame,
    judge,
    ranges_of,
    read_claims,
)
from experiments.claims.committed import (
    ALL,
    BOOTSTRAP,
    EXACT,
    NONE,
    OVER_REPEATS,
    Committed,
    Measured,
    all_of,
    exactly,
    mean_of,
)
from experiments.claims.page import BEGIN, END, PAGE, RULE, TABLE, short_table, with_short_table, write_claims
from experiments.claims.verdict import (
    DISTANCE,
    EQUAL,
    FAILS,
    HOLDS,
    IN_PART,
    LOSS_SHARE,
    NEAR,
    NOT_HERE,
    NOT_YET,
    RECALLED,
    UNDECIDED,
    VERDICTS,
    Range,
    around,
    at_least,
    at_most,
    half_the_gain,
    verdict,
    verdict_of_stand_in,
    verdict_over_cases,
)
from experiments.gpu import PARTS
from experiments.pcr.time_to_target import OVERSHOT
from pcr_exp.analysis.over_images import INTERVALS
from pcr_exp.analysis.statistics import SEEDS_ALONE
from pcr_exp.errors import ConfigError, RunError
from pcr_exp.numerics import NUMERICS
from pcr_exp.places import CONFIGS

RESULTS = Path(__file__).parents[2] / "results"
COMMITTED = Committed(RESULTS)
NUMERICS_CSV = "folder,numerics,num_runs,n,interval,commit\nset,1,0,3 repeats,none,1a2b3c4\n"
CLAIMS = [claim for _, claims in read_claims() for claim in claims]


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (2.1, 2.5, HOLDS),
        (2.0, 2.0, HOLDS),
        (1.8, 2.2, IN_PART),
        (1.6, 1.7, IN_PART),
        (1.01, 1.01, FAILS),
        (0.5, 0.6, FAILS),
        (1.3, 1.6, UNDECIDED),
        (0.9, 2.1, UNDECIDED),
        (math.nan, math.nan, UNDECIDED),
    ],
)
def test_a_verdict_is_where_the_whole_interval_lies(low: float, high: float, wanted: str) -> None:
    """2 x was published, so half of the gain is 1.5 x. The interval 1.3 to 1.6 leaves it undecided."""
    assert verdict(low, high, at_least(2), half_the_gain(2)) == wanted


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
        ([HOLDS, IN_PART], IN_PART),
        ([HOLDS, HOLDS, FAILS], IN_PART),
        ([HOLDS, FAILS, FAILS], FAILS),
        ([HOLDS, FAILS], FAILS),
        ([IN_PART, UNDECIDED, UNDECIDED], UNDECIDED),
        ([HOLDS, UNDECIDED], UNDECIDED),
        ([HOLDS, HOLDS, UNDECIDED], IN_PART),
        ([FAILS, UNDECIDED, UNDECIDED], UNDECIDED),
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


def test_what_an_interval_could_have_told_is_said() -> None:
    """80 % power detects 1.31 half widths at 2 degrees of freedom, and 1.43 with known variance."""
    three = mean_of("", [1.0, 2.0, 3.0])
    half = three.high - 2
    assert three.found / half == pytest.approx(1.31, abs=0.01)
    assert Measured("", 0, -1, 1, 9, BOOTSTRAP, math.inf).found == pytest.approx(1.43, abs=0.01)
    assert math.isnan(exactly("", 3.0).found) and math.isnan(mean_of("", [3.0]).found)


def test_so_many_repeats_would_tell() -> None:
    """Three values give 2 ± 2.48. The nearest bound is 1 away, and n = 7 gives a half width below 1."""
    three = mean_of("", [1.0, 2.0, 3.0])
    assert three.interval == OVER_REPEATS
    n = three.repeats_that_would_tell([at_least(1.0), at_least(0.5)])
    assert n == 7
    assert mean_of("", [1.0, 2.0, 3.0] * 3).high - 2 < 1
    assert three.repeats_that_would_tell([at_least(2.0)]) is None, "the mean lies on the bound"
    assert mean_of("", [3.0]).repeats_that_would_tell([at_least(1.0)]) is None
    assert Measured("", 0, -1, 1, 9, BOOTSTRAP, math.inf).repeats_that_would_tell([at_least(2)]) is None


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


def test_the_hardware_of_every_table_that_was_read_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "x,hardware\n1,CPU\n")
    write(tmp_path / "b.csv", "x,hardware\n1,GPU\n")
    committed = Committed(tmp_path)
    committed.rows("b.csv")
    assert committed.hardware("a.csv") == "CPU / GPU"


def test_the_hardware_of_runs_in_another_folder_is_named() -> None:
    committed = Committed(RESULTS)
    file = "finetuning/cars/summary.csv"
    committed.runs("finetuning/cars")
    assert committed.hardware(file) == "AMD EPYC, 2 cores, shared with others"
    committed.runs("finetuning/ham10000_folds")
    assert committed.hardware(file).startswith("AMD EPYC, 2 cores, shared with others / Intel(R) Xeon(R)")


def test_the_hardware_of_a_folder_s_own_runs_is_named_where_its_tables_have_none() -> None:
    committed, file = Committed(RESULTS), "finetuning/ham10000_folds/deployment_top1.csv"
    with pytest.raises(RunError, match="says on what hardware"):
        committed.hardware(file)
    committed.runs("finetuning/ham10000_folds")
    assert committed.hardware(file) == "Intel(R) Xeon(R) Processor, 2 cores, shared with others"


def test_many_cases_are_a_range_in_the_short_table(tmp_path: Path) -> None:
    write(tmp_path / "numerics.csv", NUMERICS_CSV)
    write(tmp_path / "set" / "table.csv", "x,hardware\n2.5,CPU\n")
    for count, words in (
        (5, "c0 **1**; c1 **2**; c2 **3**; c3 **4**; c4 **5**"),
        (6, "6 cases, **1** to **6**"),
    ):
        cases = [exactly(f"c{i}", i + 1) for i in range(count)]
        claims = [claim(measure=lambda *_, cases=cases: cases)]
        assert words in short_table(claims_frame([("A", claims)], Committed(tmp_path)), {"n": "e"})


def test_the_short_table_says_which_numbers_are_older(tmp_path: Path) -> None:
    write(tmp_path / "numerics.csv", NUMERICS_CSV)
    write(tmp_path / "set" / "table.csv", "x,hardware\n2.5,CPU\n2.6,CPU\n2.5,CPU\n")
    assert "(NUMERICS 1) |" in short_table(claims_frame([("A", [claim()])], Committed(tmp_path)), {"n": "e"})


def claim(**more: Any) -> Claim:
    settings: dict[str, Any] = {
        "name": "n",
        "says": "s",
        "source": "f",
        "published": "2 x",
        "certainty": CERTAINTIES["read"],
        "shown_in": "",
        "file": "set/table.csv",
        "measure": lambda committed, file: [mean_of("", committed.rows(file)["x"])],
        "holds": at_least(2),
        "partly": half_the_gain(2),
    }
    return Claim(**(settings | more))


def test_a_claim_is_judged_by_its_file(tmp_path: Path) -> None:
    write(tmp_path / "numerics.csv", NUMERICS_CSV)
    write(tmp_path / "set" / "table.csv", "x,hardware\n2.5,CPU\n2.6,CPU\n2.5,CPU\n")
    (row,) = judge(claim(), Committed(tmp_path))
    assert (row["verdict"], row["n"], row["interval"], row["hardware"]) == (HOLDS, 3, OVER_REPEATS, "CPU")
    assert (row["in_part"], row["freedom"], row["numerics"]) == (
        "at least 1.5",
        2,
        f"1, older than {NUMERICS}",
    )
    assert 0.1 < row["found"] < 0.3
    (row,) = judge(claim(stands_in="frozen features"), Committed(tmp_path))
    assert row["verdict"] == IN_PART and "frozen features" in row["why"]
    (row,) = judge(claim(not_here="it needs a GPU"), Committed(tmp_path))
    assert (row["verdict"], row["why"]) == (NOT_HERE, "it needs a GPU")


def test_what_is_only_recalled_is_never_refuted(tmp_path: Path) -> None:
    write(tmp_path / "numerics.csv", NUMERICS_CSV)
    write(tmp_path / "set" / "table.csv", "x,hardware\n1.01,CPU\n1.01,CPU\n1.02,CPU\n")
    in_part_sure = claim_of(ENTRY | {"less_certain": {"the group": "fairly_sure"}}).certainty
    certainties = [*CERTAINTIES.values(), in_part_sure]
    verdicts = [
        judge(claim(certainty=certainty), Committed(tmp_path))[0]["verdict"] for certainty in certainties
    ]
    assert verdicts == [FAILS, FAILS, RECALLED, RECALLED, RECALLED, FAILS]
    (row,) = judge(claim(certainty=CERTAINTIES["sure"]), Committed(tmp_path))
    assert "were it certain that this was published" in row["why"] and row["of_case"] == FAILS


def test_a_verdict_that_is_not_there_names_the_number_of_repeats(tmp_path: Path) -> None:
    write(tmp_path / "numerics.csv", NUMERICS_CSV)
    write(tmp_path / "set" / "table.csv", "x,hardware\n1.3,CPU\n1.9,CPU\n2.2,CPU\n")
    (row,) = judge(claim(), Committed(tmp_path))
    assert row["verdict"] == UNDECIDED and "if mean and scatter stay, n = 23 would" in row["why"]


def test_a_case_may_have_a_place_of_its_own(tmp_path: Path) -> None:
    write(tmp_path / "numerics.csv", NUMERICS_CSV)
    write(tmp_path / "set" / "table.csv", "x,hardware\n2.5,CPU\n")
    cases = [
        replace(exactly(str(low), 2.5), holds=at_least(low), partly=half_the_gain(low)) for low in (2, 3)
    ]
    rows = judge(claim(measure=lambda *_: cases, holds=None, partly=None), Committed(tmp_path))
    assert [row["of_case"] for row in rows] == [HOLDS, IN_PART]
    assert [row["in_part"] for row in rows] == ["at least 1.5", "at least 2"]
    assert [row["holds"] for row in rows] == ["at least 2", "at least 3"]


def test_a_file_that_is_missing_is_a_test_to_come_or_an_error(tmp_path: Path) -> None:
    (row,) = judge(claim(command="python -m experiments.train"), Committed(tmp_path))
    assert row["verdict"] == NOT_YET
    with pytest.raises(RunError, match=r"claim 'n': .*table.csv is missing"):
        judge(claim(), Committed(tmp_path))


@pytest.mark.parametrize("claim", [each for each in CLAIMS if each.measure], ids=lambda each: each.name)
def test_in_part_has_a_bound_that_can_fail(claim: Claim) -> None:
    """For every claim and case, `partly` is wider than `holds`, and numbers without the effect fail it."""
    assert claim.measure is not None
    for measured in claim.measure(COMMITTED, claim.file):
        holds, partly = ranges_of(claim, measured)
        assert partly is not None, "no bound of its own for a part"
        assert partly.holds_all_of(holds.low, holds.high) and partly != holds
        if holds.low > 1.05:  # a gain was published, in % or as a ratio, so no gain must fail
            assert verdict(1.01, 1.01, holds, partly) == FAILS
        beyond = [end for end in (partly.low - 1, partly.high + 1) if math.isfinite(end)]
        assert beyond and all(verdict(end, end, holds, partly) == FAILS for end in beyond)


def test_a_projection_is_called_one() -> None:
    """Claims, its page, the README's table and the generated pages all say that it is projected."""
    table = pd.read_csv(RESULTS / TABLE)
    (claimed,) = table[table["claim"] == "time to accuracy"].to_dict("records")
    assert OVERSHOT in claimed["why"] and "projected" in claimed["case"] and "projected" in claimed["ours"]
    assert claimed["verdict"] != HOLDS
    pages = [RESULTS / "time_to_target" / "README.md", *RESULTS.glob("time_to_target/*/projected_times.md")]
    assert len(pages) == 3
    assert [page for page in pages if OVERSHOT not in page.read_text()] == []
    readme = (RESULTS.parent / "README.md").read_text()
    (row,) = [line for line in readme.splitlines() if "same accuracy is reached in about half" in line]
    assert "projected" in row


def test_the_committed_table_follows_from_the_committed_files(tmp_path: Path) -> None:
    """After committing other results, run `python -m experiments.report`."""
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
        with_short_table("Before. After.", committed, {})


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
    if runner == "gpu":  # a study with arguments of its own, not a command of Hydra
        assert set(overrides) <= set(PARTS)
        return
    assert compose(runner, *(re.sub(r"^([^=]+=[^,\[]*),.*$", r"\1", word) for word in overrides)) is not None


def test_the_page_begins_with_the_headlines() -> None:
    first = (RESULTS / PAGE).read_text().split("## How")[0]
    lines = [line for line in first.splitlines() if line.startswith("|")]
    named = [claim.headline for claim in CLAIMS if claim.headline]
    assert len(lines) == 2 + len(named) and 6 <= len(named) <= 8
    assert [name for name in named if not (CONFIGS / "experiment" / f"{name}.yaml").exists()] == []


ENTRY: dict[str, Any] = {
    "name": "decode time",
    "says": "Decoding takes twice as long",
    "source": "decode time",
    "published": "2 x",
    "certainty": "read",
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mesure": "kurtosis"}, r"'decode time' has the key 'mesure'; wanted one of .*measure"),
        ({"measure": "kurtoses"}, r"'decode time' has the measure 'kurtoses'; wanted one of .*kurtosis"),
        ({"certainty": "maybe"}, r"the certainty 'maybe'; wanted one of fairly_sure, read"),
        ({"less_certain": {"e = 5": "maybe"}}, r"the certainty 'maybe'; wanted one of fairly_sure, read"),
        ({"holds": {"above": 2}}, r"the holds 'above'; wanted one of at_least, at_most"),
        ({"partly": 2}, r"has partly: 2; wanted one of at_least, at_most.* with its number"),
        (
            {"measure": "share_of_bytes", "arguments": {"scan": 5}},
            r"gives share_of_bytes the arguments \{'scan': 5\}: .*Give those that the function",
        ),
        ({"says": ""}, r"'decode time' lacks says\. Add what the paper says"),
    ],
)
def test_a_claim_that_says_something_unknown_is_refused_by_name(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=rf"claims\.yaml: claim .*{said}"):
        claim_of(ENTRY | changed)


def test_a_claim_is_measured_with_its_arguments() -> None:
    found = claim_of(
        ENTRY | {"measure": "predicted_sigma", "arguments": {"form": "paper"}, "holds": {"near": 1}}
    )
    assert found.measure is not None and found.holds == around(1, NEAR)
    file = "compressed_activations/one_batch_resnet18/gradient_sigma.csv"
    assert found.measure(COMMITTED, file) == MEASURES["predicted_sigma"](COMMITTED, file, form="paper")


def test_every_measure_is_of_a_claim() -> None:
    used = {claim.measure.func for claim in CLAIMS if isinstance(claim.measure, partial)}
    assert used == set(MEASURES.values())


def test_the_rule_is_said_with_its_words_and_numbers() -> None:
    said = " ".join(RULE.read_text().split())
    names = {*VERDICTS, ALL, BOOTSTRAP, EXACT, OVER_REPEATS, *INTERVALS, SEEDS_ALONE}
    assert [name for name in names if f"*{name}*" not in said] == []
    numbers = [
        f"{100 * EQUAL:g} %",
        f"{100 * NEAR:g} %",
        f"{LOSS_SHARE:g} of the",
        f"{100 * DISTANCE:g} points",
    ]
    assert [number for number in numbers if number not in said] == []
