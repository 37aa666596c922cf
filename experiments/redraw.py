"""Draw committed figures again, in place, from committed files alone: `make figures`.

In a checkout:

    python -m experiments.redraw                          # all figures of results/
    python -m experiments.redraw results/quality          # what lies below a folder
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pcr_exp.errors import RunError
from pcr_exp.places import CHECKOUT


def main(arguments: Sequence[str] | None = None) -> None:
    """Redraw what lies below the folders that were named; all, if none was.

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
    from experiments.rebuild import redraw  # what draws: torch and matplotlib, which `--help` does without

    for path in redraw(folders):
        print(path)


if __name__ == "__main__":
    main()
