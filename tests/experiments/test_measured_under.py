"""Every page states n, interval, NUMERICS and commit, and marks what it quotes from an older NUMERICS."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from experiments.results import measured_under
from experiments.results.measured_under import (
    BEGIN,
    END,
    describe_measured,
    describe_numerics,
    numerics_of,
    pages_of,
    quoted,
    sets_below,
    with_measured,
    write_measured,
)
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.measured import measured_line
from pcr_exp.analysis.runs import read_runs
from pcr_exp.errors import RunError
from pcr_exp.numerics import NUMERICS
from pcr_exp.runs.packed import pack_runs

MakeRun = Callable[..., Path]
CHECKOUT = Path(__file__).parents[2]
RESULTS = CHECKOUT / "results"
PAGES = [*pages_of(RESULTS), CHECKOUT / "README.md"]
HEAD = "folder,numerics,num_runs,n,interval,commit\n"
PAGE = f"# Title\n\nOf [codecs](../codecs) and more.\n\n{BEGIN}\nyesterday\n{END}\n\nAfter.\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_each_page_says_under_what_its_numbers_were_measured(page: Path) -> None:
    """After raising NUMERICS or committing results, run `python -m experiments.report readme=README.md`."""
    assert with_measured(page.read_text(), page, RESULTS) == page.read_text()


def test_every_page_of_results_is_one_of_them() -> None:
    found = {path.parent for path in RESULTS.rglob("README.md")}
    assert found == {page.parent for page in pages_of(RESULTS)} and len(found) >= 28


def test_claims_say_which_of_their_numbers_are_older() -> None:
    """Each claim with numbers states its NUMERICS; the README's short table states only older ones."""
    header, _, *rows = next(
        table.splitlines()
        for table in (RESULTS / "claims.md").read_text().split("\n\n")
        if table.startswith("| claim |")
    )
    at = header.split("|").index(" NUMERICS ")
    assert [row for row in rows if not row.split("|")[at].strip()] == []
    readme = (
        (CHECKOUT / "README.md").read_text().partition("<!-- claims")[2].partition("<!-- end of claims")[0]
    )
    claims = pd.read_csv(RESULTS / "claims.csv").groupby("says")["numerics"].first().fillna("")
    lines = [line.split("|") for line in readme.splitlines() if line.startswith("| ")]
    found = {
        line[2].strip(): "NUMERICS" in "|".join(line) for line in lines if line[2].strip() in claims.index
    }
    assert len(found) >= 8
    assert found == {says: "older" in claims[says] for says in found}


@pytest.fixture
def results(tmp_path: Path, make_run: MakeRun) -> Path:
    """A set of runs of the current NUMERICS, and a page of codecs of the previous one."""
    root = tmp_path / "results"
    for seed in range(3):
        for scan in ("baseline", "group_1"):
            make_run(tmp_path / "raw", scan, seed=seed)
    pack_runs(tmp_path / "raw", root / "trained" / "photos" / "runs")
    (root / "trained" / "photos" / "summary.csv").write_text("difference_interval\n\nt over seeds alone\n")
    (root / "codecs").mkdir()
    (root / "numerics.csv").write_text(
        f"{HEAD}codecs,{NUMERICS - 1},0,9 repeats,smallest to largest,1a2b3c4\ntrained,{NUMERICS},6,,,\n"
    )
    for name in ("codecs", "trained"):
        (root / name / "README.md").write_text(PAGE)
    measured_under._declared.cache_clear()
    return root


def test_a_page_has_a_line_for_each_of_its_sets_and_for_older_ones_that_it_links_to(results: Path) -> None:
    write_measured(results)
    trained, codecs = ((results / name / "README.md").read_text() for name in ("trained", "codecs"))
    assert f"| photos | 3 seeds each | t over seeds alone, 95 % | {NUMERICS} | " in trained
    assert f"older than {NUMERICS}: codecs ({NUMERICS - 1})." in trained
    older = f"{NUMERICS - 1}, older than {NUMERICS}"
    assert f"| all | 9 repeats | smallest to largest | {older} | 1a2b3c4 |" in codecs
    assert "yesterday" not in trained + codecs and trained.endswith("After.\n")
    assert "Linked from here" not in codecs, "its own page is no other"


def test_quoting_an_older_set_changes_what_a_page_must_say(results: Path) -> None:
    """The test above therefore fails for a page that newly links to one, until the page states this."""
    page = results / "trained" / "README.md"
    before = describe_measured("Nothing else.", page, results)
    assert "older" not in before
    assert "codecs (" in describe_measured("As [there](../codecs/table.md).", page, results)
    assert "codecs (" in describe_measured("As `results/codecs` has it.", page, results)
    command = "```bash\npython -m experiments.figures out=results/codecs\n```\n"
    assert quoted(command, results) == [], "a command quotes no number"


def test_commits_of_what_is_no_run_are_in_its_json(results: Path) -> None:
    (results / "codecs" / "speed.json").write_text(json.dumps({"git_sha": "9f8e7d6c5b4a"}))
    (found,) = sets_below(results / "codecs")
    assert found.commits == ("1a2b3c4", "9f8e7d6")
    (results / "trained" / "more.json").write_text(json.dumps({"git_sha": "9f8e7d6c5b4a"}))
    with pytest.raises(RunError, match=r"numerics.csv: trained has measurements that are no runs; wanted"):
        sets_below(results / "trained")


def test_a_file_or_folder_of_another_number_has_a_line_of_its_own(results: Path) -> None:
    codecs = results / "codecs"
    for name, sha in (("old", "aaaaaaa1"), ("new", "bbbbbbb1")):
        (codecs / name).mkdir()
        (codecs / name / "speed.json").write_text(json.dumps({"git_sha": sha}))
    with (results / "numerics.csv").open("a") as file:
        file.write(f"codecs/new,{NUMERICS},0,3 repeats,smallest to largest,\n")
        file.write(f"codecs/one.csv,{NUMERICS},0,4 repeats,smallest to largest,ccccccc\n")
    measured_under._declared.cache_clear()
    assert [(each.of, each.n, each.numerics, each.commits) for each in sets_below(codecs)] == [
        ("other files", "9 repeats", (NUMERICS - 1,), ("1a2b3c4", "aaaaaaa")),
        ("new", "3 repeats", (NUMERICS,), ("bbbbbbb",)),
        ("one.csv", "4 repeats", (NUMERICS,), ("ccccccc",)),
    ]
    numbers = {name: numerics_of(results, f"codecs/{name}") for name in ("one.csv", "two.csv", "new/x.csv")}
    (results / "trained" / "more").mkdir()
    with (results / "numerics.csv").open("a") as file:
        file.write(f"trained/more,{NUMERICS - 1},0,3 repeats,smallest to largest,ddddddd\n")
    measured_under._declared.cache_clear()
    words = describe_measured("As [there](../trained).", codecs / "README.md", results)
    assert words.endswith(f"older than {NUMERICS}: trained/more ({NUMERICS - 1}).")
    assert numbers == {"one.csv": NUMERICS, "two.csv": NUMERICS - 1, "new/x.csv": NUMERICS}


def test_a_page_that_cannot_say_it_is_an_error(results: Path) -> None:
    page = results / "codecs" / "README.md"
    page.write_text("# Title\n")
    with pytest.raises(RunError, match=r"README.md does not say what it was measured under: wanted"):
        write_measured(results)
    with pytest.raises(RunError, match=r"numerics.csv has no line for unknown/deep: wanted folder"):
        numerics_of(results, "unknown/deep")
    assert numerics_of(results, "trained/photos") == NUMERICS


def test_numbers_of_today_are_said_plainly() -> None:
    assert describe_numerics([NUMERICS]) == str(NUMERICS)
    assert (
        describe_numerics([NUMERICS, NUMERICS - 1]) == f"{NUMERICS - 1} and {NUMERICS}, older than {NUMERICS}"
    )


def test_pages_of_runs_end_in_the_same_facts(tmp_path: Path, make_run: MakeRun) -> None:
    for seed in range(2):
        make_run(tmp_path, "group_1", seed=seed)
    line = measured_line(run_frame(read_runs(tmp_path)), ["t over seeds alone", "", float("nan")])
    assert line.startswith(
        f"\nMeasured: n = 2 seeds; interval: t over seeds alone, 95 %; NUMERICS {NUMERICS};"
    )
    names = ("summary", "deployment", "projected_times", "equal_bytes", "gradients", "echo")
    tables = [path for path in RESULTS.rglob("*.md") if path.stem.startswith(names)]
    assert len(tables) >= 25
    assert [path for path in tables if "\nMeasured: n = " not in path.read_text()] == []
