"""Reading measurements back from disk: what is missing or damaged is said alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from pcr_exp.errors import RunError


@contextmanager
def reading(folder: Path, remedy: str) -> Iterator[None]:
    """Inside, a file of `folder` that is missing or cannot be read is a RunError that ends in `remedy`."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunError(
            f"{folder} holds no whole measurement: {error.filename} is missing. {remedy}"
        ) from error
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"the measurement in {folder} is damaged: {error}. {remedy}") from error


def require_columns(path: Path, rows: pd.DataFrame, wanted: Sequence[str], remedy: str) -> None:
    """Raise RunError unless the rows of a file have the columns of this version, in order."""
    if list(rows.columns) != list(wanted):
        raise RunError(f"{path} has columns {list(rows.columns)}; wanted {list(wanted)}. {remedy}")
