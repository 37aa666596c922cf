"""Provenance of the numbers on each page of results: n, interval, NUMERICS and commit.

A packed set of runs records all of it. Other measurements (loaders, codecs, images) record the commit in a
JSON file next to them, and the rest in `results/numerics.csv`. It has a line per folder with a page, and one
for each folder or file in it that was measured under another NUMERICS. `python -m experiments.report` writes
the provenance between BEGIN and END on each page. So no page can show results of an older NUMERICS, or link
to them, without saying so.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.measured import COMMIT_DIGITS, MeasuredSet, set_of_runs
from pcr_exp.analysis.over_images import INTERVALS
from pcr_exp.analysis.runs import read_runs, read_timed_runs
from pcr_exp.analysis.statistics import SEEDS_ALONE
from pcr_exp.analysis.tables import markdown_table
from pcr_exp.errors import RunError
from pcr_exp.numerics import NUMERICS
from pcr_exp.runs.packed import RUNS_FILE
from pcr_exp.system.atomic import write_atomic

NUMERICS_FILE = "numerics.csv"
BEGIN, END = "<!-- measured: python -m experiments.report -->", "<!-- end of measured -->"
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def sets_below(folder: Path) -> list[MeasuredSet]:
    """Return the measured sets of a page's folder: its packed runs, and other sets from numerics.csv.

    Raises:
        RunError: numerics.csv lacks a value that cannot be read from files.
    """
    found = []
    for path in sorted(folder.rglob(RUNS_FILE)):
        runs = read_runs(path.parent) or read_timed_runs(path.parent)
        name = str(path.parent.relative_to(folder)).removesuffix("runs").strip("/.")
        found.append(set_of_runs(name or "runs", run_frame(runs), _intervals(path.parent.parent)))
    results, own = _results_of(folder), _name(folder)
    declared = _declared(results)
    apart = [name for name in declared if name != own and _holds(own, name)]
    commits = _commits(declared.get(own, {}), folder, but=[results / name for name in apart])
    if commits or not found:
        found.append(_declared_set("other files" if found or apart else "all", own, results, commits))
    for name in apart:
        commits = _commits(declared[name], results / name)
        found.append(_declared_set(name.removeprefix(f"{own}/"), name, results, commits))
    return found


def _declared_set(of: str, name: str, results: Path, commits: list[str]) -> MeasuredSet:
    """Build the set of a folder or file from its line in numerics.csv."""
    declared = _declared(results).get(name, {})
    if not declared.get("n") or not declared.get("interval") or not commits:
        raise RunError(
            f"{NUMERICS_FILE}: {name} has measurements that are no runs; wanted their n, interval "
            f"and commit, found {declared.get('n')!r}, {declared.get('interval')!r} and {commits}."
        )
    number = int(declared["numerics"])
    return MeasuredSet(of, declared["n"], declared["interval"], (number,), tuple(dict.fromkeys(commits)))


def numerics_of(results: Path, name: str) -> int:
    """Return the NUMERICS of a file or folder of results, or of the nearest folder above it.

    Raises:
        RunError: numerics.csv has none.
    """
    declared = _declared(results)
    for place in (Path(name), *Path(name).parents):
        if str(place) in declared:
            return int(declared[str(place)]["numerics"])
    raise RunError(f"{results / NUMERICS_FILE} has no line for {name}: wanted folder and numerics.")


def describe_numerics(numbers: Iterable[int]) -> str:
    """Format NUMERICS values: `2`, or `1, older than 2` if one is older than the current one."""
    known = sorted(set(numbers))
    words = " and ".join(map(str, known))
    return f"{words}, older than {NUMERICS}" if known and known[0] < NUMERICS else words


def pages_of(results: Path) -> list[Path]:
    """Return the README.md of each folder of results that has one, sorted."""
    return sorted(results.glob("*/README.md"))


def write_measured(results: Path, *others: Path) -> list[Path]:
    """Update the text between BEGIN and END on each page of results, and on `others`, which only link there.

    Raises:
        RunError: a page lacks these lines, or as `sets_below`.
    """
    pages = [*pages_of(results), *others]
    for page in pages:
        write_atomic(page, [with_measured(page.read_text(), page, results).encode()])
    return pages


def with_measured(text: str, page: Path, results: Path) -> str:
    """Return the text of a page with its provenance between BEGIN and END.

    Raises:
        RunError: it lacks the lines BEGIN and END, or as `sets_below`.
    """
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise RunError(f"{page} does not say what it was measured under: wanted the lines {BEGIN} and {END}.")
    said = describe_measured(f"{before}{after}", page, results)
    return f"{before}{BEGIN}\n{said}\n{END}{after}"


def describe_measured(text: str, page: Path, results: Path) -> str:
    """Return a table of the page's own sets, and a line about older ones that it links to."""
    folder = page.parent
    own = folder.is_relative_to(results) and _name(folder) in _declared(results)
    parts = []
    if own:
        rows = pd.DataFrame([{"set": each} for each in sets_below(folder)])
        columns = {
            "measured": lambda row: row["set"].of,
            "n": lambda row: row["set"].n,
            "interval": lambda row: row["set"].interval,
            "NUMERICS": lambda row: describe_numerics(row["set"].numerics),
            "commit": lambda row: ", ".join(row["set"].commits),
        }
        parts.append(markdown_table(rows, columns).replace(" ---: |", " --- |"))
    linked = [name for name in quoted(text, results) if not (own and _holds(_name(folder), name))]
    older = [
        f"{name} ({number})"
        for name in _declared(results)
        if any(_holds(other, name) for other in linked) and (number := numerics_of(results, name)) < NUMERICS
    ]
    if older:
        parts.append(
            f"Linked from here, and measured under a NUMERICS older than {NUMERICS}: {', '.join(older)}."
        )
    return "\n\n".join(parts) or "No table here has numbers of its own."


def quoted(text: str, results: Path) -> list[str]:
    """Return the entries of numerics.csv that a page links to or names outside code blocks, sorted."""
    names = "|".join(sorted(_declared(results), key=len, reverse=True))
    found = re.findall(rf"(?:results|\.\.)/({names})\b", _FENCED.sub("", text))
    return sorted(set(found))


def _intervals(folder: Path) -> list[str]:
    """Return the kinds of intervals in the tables of a folder with runs."""
    kinds: list[str] = []
    for path in sorted(folder.glob("*.csv")):
        rows = pd.read_csv(path)
        if "difference_interval" in rows:
            kinds += rows["difference_interval"].dropna().tolist()
    order = (SEEDS_ALONE, *INTERVALS)
    return sorted(set(kinds), key=order.index)


def _commits(declared: dict[str, str], place: Path, but: Sequence[Path] = ()) -> list[str]:
    """Return the commits in a line of numerics.csv and in JSON files below `place`, but not below `but`."""
    paths = sorted(place.rglob("*.json"))
    others = [path for path in paths if not any(path.is_relative_to(other) for other in but)]
    said = [json.loads(path.read_text()) for path in others]
    of_json = [one["git_sha"] for one in said if isinstance(one, dict) and one.get("git_sha")]
    return [*declared.get("commit", "").split(), *(str(sha)[:COMMIT_DIGITS] for sha in of_json)]


def _results_of(folder: Path) -> Path:
    return next(above for above in folder.parents if (above / NUMERICS_FILE).is_file())


def _holds(folder: str, name: str) -> bool:
    """Return whether a file or folder of results is `folder` or lies in it."""
    return Path(name).is_relative_to(folder)


def _name(folder: Path) -> str:
    return str(folder.relative_to(_results_of(folder)))


@cache
def _declared(results: Path) -> dict[str, dict[str, str]]:
    with (results / NUMERICS_FILE).open(newline="") as file:
        return {row["folder"]: row for row in csv.DictReader(file)}
