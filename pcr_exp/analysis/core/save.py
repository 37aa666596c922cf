"""A figure on disk: to print, to look at, and the numbers that it draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.style import style


def save_figure(figure: Figure, data: pd.DataFrame, folder: str | Path, name: str) -> list[Path]:
    """Write `<name>.pdf`, `<name>.png` and `<name>.csv` (the rows it draws) into `folder`.

    The same figure gives the same bytes: no dates are written into the files.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    pdf, png, csv = (folder / f"{name}.{ending}" for ending in ("pdf", "png", "csv"))
    # Also legends that lie below a panel and are left out of the layout, so that they do not press on it.
    legends = [legend for ax in figure.axes if (legend := ax.get_legend()) is not None]
    whole: dict[str, Any] = {
        "bbox_inches": "tight",
        "bbox_extra_artists": [*figure.get_default_bbox_extra_artists(), *legends],
    }
    with style():
        figure.savefig(pdf, **whole, metadata={"CreationDate": None})
        figure.savefig(png, **whole, metadata={"Software": None})
    data.to_csv(csv, index=False)
    return [pdf, png, csv]
