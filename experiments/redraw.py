"""Redraw committed figures in place, from committed files only: `make figures`.

In a checkout:

    python -m experiments.redraw                          # all figures of results/
    python -m experiments.redraw results/quality          # those below a folder
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pcr_exp.errors import RunError
from pcr_exp.places import CHECKOUT


def main(arguments: Sequence[str] | None = None) -> None:
    """Redraw the figures below the given folders, or all of them if none is given.

    Raises:
        RunError: the package is installed without the repository.
    """
    if CHECKOUT is None:
        raise RunError("redraw: wanted a checkout of the repository, whose results/ it draws.")
    parser = argparse.ArgumentParser(
        prog="python -m experiments.redraw",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", nargs="*", type=Path, help="of results/")
    folders = parser.parse_args(arguments).folders
    from experiments.rebuild import redraw  # needs torch and matplotlib; `--help` does not

    for path in redraw(folders):
        print(path)


if __name__ == "__main__":
    try:
        main()
    except RunError as error:
        sys.exit(f"error: {error}")
