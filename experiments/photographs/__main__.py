"""Lay out photographs of public repositories as their datasets are published, and check sets of images.

    python -m experiments.photographs lay cars car_dataset1.git /data/cars
    python -m experiments.photographs lay imagenet imagenette.git /data/imagenet
    python -m experiments.photographs lay ham10000 XLA.git /data/ham10000 --labels bounding-box-detection.git
    python -m experiments.photographs check cars=/data/cars imagenet=/data/imagenet --out results/datasets

Nothing is downloaded: give clones, bare or not. Photographs are never written to the checkout.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.photographs.found import (
    LABELS,
    Found,
    classes_table,
    expected_table,
    find,
    folds_table,
    page_table,
    sets_table,
)
from experiments.photographs.layouts import SOURCES, lay
from pcr_exp.errors import ConfigError, PcrExpError
from pcr_exp.system.atomic import make_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit code."""
    given = _parser().parse_args(arguments)
    try:
        if given.what == "lay":
            lay(given.name, given.photographs, given.out, given.labels)
            found = [find(given.name, given.out)]
        else:
            found = [find(*_named(text)) for text in given.sets]
        return report(found, given.out if given.what == "check" else None)
    except PcrExpError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def report(found: Sequence[Found], out: Path | None) -> int:
    """Print what was found, and write it to `out` if given. Return 1 if a file is bad."""
    for one in found:
        print(*one.bad, sep="\n", end="\n" if one.bad else "")
    is_bad, found = any(one.bad for one in found), [one for one in found if one.images]
    if not found:
        return 1  # there is nothing to tabulate
    sets, expected = sets_table(found), expected_table(found)
    print(page_table(sets))
    others = expected[~expected["agrees"]]
    print(others.to_string(index=False) if len(others) else "all numbers are as they were known beforehand")
    if out is not None:
        make_folder(out)
        tables = {"sets": sets, "classes": classes_table(found), "folds": folds_table(found)}
        for name, table in {**tables, "expected": expected}.items():
            table.to_csv(out / f"{name}.csv", index=False)
    return int(is_bad)


def _named(text: str) -> tuple[str, Path]:
    kind, _, root = text.partition("=")
    if kind not in LABELS or not root:
        raise ConfigError(f"{text}: wanted <kind>=<folder>, of the kinds {', '.join(LABELS)}.")
    return kind, Path(root)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.photographs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="what", required=True)
    laying = commands.add_parser("lay", help="lay the photographs of a repository")
    laying.add_argument("name", choices=sorted(SOURCES), help="which dataset")
    laying.add_argument("photographs", type=Path, help="clone of the repository that has the images")
    laying.add_argument("out", type=Path, help="new folder outside the checkout")
    laying.add_argument("--labels", type=Path, help="clone of the repository that has the labels (ham10000)")
    checking = commands.add_parser("check", help="check every file of sets, and write tables")
    checking.add_argument("sets", nargs="+", help="such as cars=/data/cars")
    checking.add_argument("--out", type=Path, help="folder that the tables go to")
    return parser


if __name__ == "__main__":
    sys.exit(main())
