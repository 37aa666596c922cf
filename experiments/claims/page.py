"""The table of claims, and the page for readers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.claims.claim import claims_frame, read_claims
from experiments.claims.committed import EXACT, NONE, Committed
from experiments.claims.verdict import NOT_YET, RECALLED, UNDECIDED, VERDICTS
from pcr_exp.analysis.tables import markdown_table, three_figures
from pcr_exp.errors import RunError
from pcr_exp.system.atomic import write_atomic

TABLE, PAGE = "claims.csv", "claims.md"
RULE = Path(__file__).with_name("verdicts.md")
"""Explanation of the rule for verdicts, for readers."""
BEGIN, END = "<!-- claims: python -m experiments.report readme=README.md -->", "<!-- end of claims -->"
MOST_CASES = 5
INTRODUCTION = (
    "Published numbers are of the papers' clusters and networks, ours of two shared CPU cores. How sure it "
    "is that a number was published stands beside it. `python -m experiments.report` makes this page and "
    "[claims.csv](claims.csv) from the files in this folder alone, and a test makes them again."
)


def write_claims(results: Path, readme: Path | None = None) -> list[Path]:
    """Write the table and the page of all claims, from committed files. Return their paths.

    Args:
        results: Folder of committed files; the table and the page are written there too.
        readme: Page whose short table, between the lines BEGIN and END, is replaced.

    Raises:
        RunError: a file that decides a claim is missing or lacks its rows, or `readme` has no place for the
            short table.
    """
    systems = read_claims()
    headlines = {claim.name: claim.headline for _, claims in systems for claim in claims if claim.headline}
    table = claims_frame(systems, Committed(results))
    files = [results / TABLE, results / PAGE]
    write_atomic(files[0], [table.to_csv(index=False).encode()])
    write_atomic(files[1], [claims_to_markdown(table, headlines).encode()])
    if readme is not None:
        write_atomic(readme, [with_short_table(readme.read_text(), table, headlines).encode()])
    return files


def with_short_table(text: str, table: pd.DataFrame, headlines: Mapping[str, str]) -> str:
    """Return the text of a page with the short table between BEGIN and END.

    Raises:
        RunError: it lacks these lines.
    """
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise RunError(f"the page has no place for the table of claims: wanted lines {BEGIN} and {END}.")
    return f"{before}{BEGIN}\n{short_table(table, headlines)}\n{END}{after}"


def claims_to_markdown(table: pd.DataFrame, headlines: Mapping[str, str]) -> str:
    """Return the page: short table, rule and a table per system; `table` is from `claims_frame`."""
    parts = [
        f"# What the papers claim, and what came out here\n\n{len(_claims(table))} claims: {_counts(table)}.",
        INTRODUCTION,
        short_table(table, headlines),
        f"## How a verdict comes about\n\n{RULE.read_text().rstrip()}",
    ]
    for system, claims in table.groupby("system", sort=False):
        parts.append(f"## {system}\n\n{_system_table(claims)}\n\n{_open_claims(claims)}".rstrip())
    return "\n\n".join(parts) + "\n"


def short_table(table: pd.DataFrame, headlines: Mapping[str, str]) -> str:
    """Return a table of the papers' best-known claims, with the experiment of each, without links."""
    chosen = table[table["claim"].isin(headlines)]
    columns = {
        "paper": lambda row: row["system"],
        "claim": lambda row: row["says"],
        "published": lambda row: row["published"],
        "here": lambda row: _with_numerics(row, row["few_cases"]) if row["cases"] else "-",
        "verdict": lambda row: f"**{row['verdict']}**",
        "`experiment=`": lambda row: f"`{headlines[row['claim']]}`",
    }
    return _left(markdown_table(_claims(chosen), columns), len(columns))


def _claims(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per claim, with its cases as text."""
    by_claim = table.groupby(["system", "claim"], sort=False)
    first = table.drop_duplicates(["system", "claim"]).reset_index(drop=True)
    return first.assign(
        cases=[_cases(rows) for _, rows in by_claim],
        few_cases=[_few_cases(rows) for _, rows in by_claim],
        counts=[_n(rows) for _, rows in by_claim],
        powers=[_power(rows) for _, rows in by_claim],
    )


def _cases(rows: pd.DataFrame) -> str:
    if rows["value"].isna().all():
        return ""
    return "; ".join(_number(row) for row in rows.to_dict("records")) + _unit(rows.iloc[0])


def _few_cases(rows: pd.DataFrame) -> str:
    """Format the cases; more than MOST_CASES only by number and range, for a table that is quick to read."""
    if len(rows) <= MOST_CASES:
        return _cases(rows)
    low, high = three_figures(rows["value"].min()), three_figures(rows["value"].max())
    return f"{len(rows)} cases, **{low}** to **{high}**{_unit(rows.iloc[0])}"


def _number(row: dict[Any, Any]) -> str:
    case = f"{row['case']} " if row["case"] else ""
    ends = (
        ""
        if row["interval"] in (EXACT, NONE)
        else f" ({three_figures(row['low'])} to {three_figures(row['high'])})"
    )
    return f"{case}**{three_figures(row['value'])}**{ends}"


def _unit(row: Any) -> str:
    return f" {row['unit']}" if row["unit"] else ""


def _n(rows: pd.DataFrame) -> str:
    counts = sorted({int(n) for n in rows["n"].dropna()})
    if not counts:
        return ""
    span = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return f"{span} ({', '.join(dict.fromkeys(rows['interval']))})"


def _power(rows: pd.DataFrame) -> str:
    """Format the smallest and largest difference that cases would have detected; empty if there is none."""
    found = rows["found"].dropna()
    if found.empty:
        return ""
    low, high = three_figures(found.min()), three_figures(found.max())
    return f"; 80 % power: {low if low == high else f'{low} to {high}'}{_unit(rows.iloc[0])}"


def _with_numerics(row: Any, text: str) -> str:
    numbers, _, older = str(row["numerics"]).partition(", older")
    return f"{text} (NUMERICS {numbers})" if older else text


def _ours(row: Any) -> str:
    return f"{row['ours']}: {row['cases']}" if row["cases"] else "-"


def _system_table(claims: pd.DataFrame) -> str:
    columns = {
        "claim": lambda row: f"**{row['claim']}**: {row['says']}",
        "published · where · certainty": lambda row: " · ".join(
            row[key] for key in ("published", "source", "certainty")
        ),
        "ours": _ours,
        "n (interval)": lambda row: f"{row['counts']}{row['powers']}" if row["counts"] else "-",
        "verdict": lambda row: f"**{row['verdict']}**: {row['why']}",
        "hardware": lambda row: row["hardware"] if isinstance(row["hardware"], str) else "-",
        "NUMERICS": lambda row: row["numerics"] if isinstance(row["numerics"], str) else "-",
        "shown in": lambda row: f"[{_last(row['shown_in'])}]({row['shown_in']})" if row["shown_in"] else "-",
    }
    return _left(markdown_table(_claims(claims), columns), len(columns))


def _last(path: str) -> str:
    return path.removesuffix("/README.md")


def _open_claims(claims: pd.DataFrame) -> str:
    undecided = claims["verdict"].isin([NOT_YET, UNDECIDED, RECALLED]) & (claims["command"] != "")
    waiting = _claims(claims[undecided])
    lines = [f"* **{row['claim']}**: `{row['command']}` ({row['cost']})" for _, row in waiting.iterrows()]
    return "\n".join(["What would decide the open ones, and its cost:\n", *lines]) if lines else ""


def _counts(table: pd.DataFrame) -> str:
    counts = _claims(table)["verdict"].value_counts()
    return ", ".join(f"*{word}* {counts[word]}" for word in VERDICTS if word in counts)


def _left(table: str, num_columns: int) -> str:
    """Return a Markdown table with all columns aligned left."""
    header, _, *rows = table.splitlines()
    return "\n".join([header, "|" + " --- |" * num_columns, *rows])
