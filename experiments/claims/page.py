"""The table of claims, and the page that people read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from experiments.claims import comet, echoing, pcr_accuracy, pcr_policies, pcr_speed, threelc, verdict
from experiments.claims.claim import Claim, claims_frame
from experiments.claims.committed import ALL, BOOTSTRAP, EXACT, NONE, OVER_REPEATS, Committed
from experiments.claims.learned import DISTANCE, LOSS_SHARE
from experiments.claims.verdict import NOT_HERE, NOT_YET, RECALLED, UNDECIDED, VERDICTS
from pcr_exp.analysis.over_images import FOLDS_AND_IMAGES, SEEDS_AND_IMAGES
from pcr_exp.analysis.statistics import SEEDS_ALONE
from pcr_exp.analysis.tables import markdown_table, three_figures
from pcr_exp.errors import RunError
from pcr_exp.system.atomic import write_atomic

SYSTEMS: list[tuple[str, list[Claim]]] = [
    ("PCR", pcr_speed.CLAIMS + pcr_accuracy.CLAIMS + pcr_policies.CLAIMS),
    ("Data Echoing", echoing.CLAIMS),
    ("3LC", threelc.CLAIMS),
    ("COMET", comet.CLAIMS),
]
"""Every claim, by the system that makes it."""
TABLE, PAGE = "claims.csv", "claims.md"
SHORT = [
    *("time to accuracy", "half the bytes", "half the bytes suffice", "twice the images/s", "size on disk"),
    *("ImageNet at group 5", "decode time"),
    *("repeats are free", "39 to 107 times less traffic", "16 to 23 times as fast", "13.5 times less memory"),
]
"""Claims of the short table, which the README shows too."""

BEGIN, END = "<!-- claims: python -m experiments.report readme=README.md -->", "<!-- end of claims -->"
INTRODUCTION = (
    "Published numbers are of the papers' clusters and networks, ours of two shared CPU cores. How sure it "
    "is that a number was published stands beside it. `python -m experiments.report` makes this page and "
    "[claims.csv](claims.csv) from the files in this folder alone, and a test makes them again."
)
_CASES = (verdict.__doc__ or "").partition("\n\n")[2].strip()
RULE = (
    f"{_CASES}\n\n"
    f"Intervals are of 95 %. *{SEEDS_AND_IMAGES}* and *{FOLDS_AND_IMAGES}*: what other seeds and images "
    f"would give, of runs that kept what they said of every image. *{SEEDS_ALONE}*: runs that did not; other "
    f"images would change more than the interval knows. *{OVER_REPEATS}*: seconds, bytes and their ratios, "
    f"each of one seed or repeat. *{BOOTSTRAP}*: of the file that a number is from. *{ALL}*: the claim is "
    f"about every one of n cells. *{EXACT}*: bytes, counts and errors, which another run gives again. *80 % "
    "power*: the difference that four of five such experiments would have shown; smaller ones may be there, "
    "unseen.\n\n"
    "A ratio holds in part if it has half of the published gain. Two numbers are the same if they differ by "
    f"at most {100 * verdict.EQUAL:g} %, and in part by at most {100 * verdict.NEAR:g} %; nothing is lost if "
    "less than a point is, and in part if less than two.\n\n"
    f"Accuracies of trainings that were too short give no verdict: *{NOT_YET}*. Even the best of them end at "
    f"more than {LOSS_SHARE:g} of the training loss of guessing, or more than {100 * DISTANCE:g} points "
    "below their target. Where frozen features or a projection stand for a training, a claim holds in part "
    f"at best, and is not refuted. *{NOT_HERE}* has its reason beside it. No verdict is set by hand."
)


def write_claims(results: Path, readme: Path | None = None) -> list[Path]:
    """Write the table and the page of all claims, from committed files; returns the two.

    Args:
        results: The folder of committed files; table and page go there, too.
        readme: A page that has the short table between the lines BEGIN and END: it is put there anew.

    Raises:
        RunError: a file that a claim is decided by is missing or lacks its rows, or `readme` has no place
            for the short table.
    """
    table = claims_frame(SYSTEMS, Committed(results))
    files = [results / TABLE, results / PAGE]
    write_atomic(files[0], [table.to_csv(index=False).encode()])
    write_atomic(files[1], [claims_to_markdown(table).encode()])
    if readme is not None:
        write_atomic(readme, [with_short_table(readme.read_text(), table).encode()])
    return files


def with_short_table(text: str, table: pd.DataFrame) -> str:
    """The text of a page with the short table between BEGIN and END.

    Raises:
        RunError: it has no such lines.
    """
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise RunError(f"the page has no place for the table of claims: wanted lines {BEGIN} and {END}.")
    return f"{before}{BEGIN}\n{short_table(table)}\n{END}{after}"


def claims_to_markdown(table: pd.DataFrame) -> str:
    """The page: the short table, the rule, and a table per system; `table` is `claims_frame`'s."""
    parts = [
        f"# What the papers claim, and what came out here\n\n{len(_claims(table))} claims: {_counts(table)}.",
        INTRODUCTION,
        short_table(table),
        f"## How a verdict comes about\n\n{RULE}",
    ]
    for system, claims in table.groupby("system", sort=False):
        parts.append(f"## {system}\n\n{_system_table(claims)}\n\n{_open_claims(claims)}".rstrip())
    return "\n\n".join(parts) + "\n"


def short_table(table: pd.DataFrame) -> str:
    """The claims that people know these papers by: claim, published, ours, verdict. Without links."""
    chosen = table[table["claim"].isin(SHORT)]
    columns = {
        "": lambda row: row["system"],
        "claim": lambda row: row["says"],
        "published · how sure": lambda row: f"{row['published']} · {row['certainty']}",
        "here": lambda row: _with_numerics(row, row["cases"]) if row["cases"] else "-",
        "verdict": lambda row: f"**{row['verdict']}**",
    }
    return _left(markdown_table(_claims(chosen), columns), len(columns))


def _claims(table: pd.DataFrame) -> pd.DataFrame:
    """One row per claim, with its cases in words."""
    by_claim = table.groupby(["system", "claim"], sort=False)
    first = table.drop_duplicates(["system", "claim"]).reset_index(drop=True)
    cases = [_cases(rows) for _, rows in by_claim]
    counts = [_n(rows) for _, rows in by_claim]
    return first.assign(cases=cases, counts=counts, powers=[_power(rows) for _, rows in by_claim])


def _cases(rows: pd.DataFrame) -> str:
    if rows["value"].isna().all():
        return ""
    return "; ".join(_number(row) for row in rows.to_dict("records")) + _unit(rows.iloc[0])


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
    """What the cases would have found, from the smallest to the largest; empty where nothing scatters."""
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
        "published · where · how sure": lambda row: " · ".join(
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
    """A Markdown table whose columns are all aligned left, as words are."""
    header, _, *rows = table.splitlines()
    return "\n".join([header, "|" + " --- |" * num_columns, *rows])
