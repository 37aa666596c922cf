"""`activations.csv`: what every compressed layer was like, look by look (`pcr_exp.activations.keep`)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcr_exp.records.atomic import write_atomic


def write_layers(path: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """Write all rows so far; a run that compresses nothing gets no file.

    Raises:
        StorageError: the disk is full or refuses.
    """
    if not history:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(history[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    write_atomic(path, [text.getvalue().encode()])
