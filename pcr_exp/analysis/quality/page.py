"""The figures of quality on disk, each with the caption that the json beside its rows gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.analysis.core.caption import NOT_TIMED, Caption, hardware_words
from pcr_exp.analysis.core.cells import span
from pcr_exp.analysis.core.figure import save_figure
from pcr_exp.analysis.core.run_quality import crops_of, ms_ssim_words
from pcr_exp.analysis.quality.figures import draw_bytes_per_group, draw_decode_modes, draw_mssim_vs_scan
from pcr_exp.analysis.quality.files import read_metas
from pcr_exp.analysis.quality.overview import NAME, draw_quality_overview, quality_overview

_OF_ANY_FOLDER = "folder"
"""The dataset of images that have no name of their own: they are called after where they were measured."""
"""The side of crops, where neither the json nor its command says another."""
_Metas = Mapping[str, Mapping[str, Any]]


def save_quality_figures(quality: pd.DataFrame, measured_in: str | Path, out: str | Path) -> list[Path]:
    """Save `mssim_vs_scan` and `bytes_per_group` of `files.load_quality(measured_in)` in `out`."""
    metas = _metas(measured_in)
    named = _named(quality, metas)
    per_group = _caption(metas, "Quality per scan group and per byte", "whole images")
    sizes = _caption(metas, "Bytes per scan group", "whole images")
    return [
        *save_figure(draw_mssim_vs_scan(named), quality, out, "mssim_vs_scan", per_group),
        *save_figure(draw_bytes_per_group(named), quality, out, "bytes_per_group", sizes),
    ]


def save_decode_modes(crops: pd.DataFrame, measured_in: str | Path, out: str | Path) -> list[Path]:
    """Save `decode_modes` of the crops that were measured beside the json of `measured_in`."""
    metas = _metas(measured_in)
    sides = sorted({_crop_px(meta) for meta in metas.values()})
    size = " / ".join(map(crops_of, sides))
    caption = _caption(metas, "Quality of crops by decode mode", size)
    figure = draw_decode_modes(_named(crops, metas), ms_ssim_words([size]))
    return save_figure(figure, crops, out, "decode_modes", caption)


def save_overview(quality_root: Path, out: Path) -> list[Path]:
    """Save the `overview` of all measurements below a folder."""
    overview = quality_overview(quality_root)
    caption = _caption(_metas(quality_root), "What each scan group keeps, and what it costs", "whole images")
    return save_figure(draw_quality_overview(overview), overview, out, NAME, caption)


def _metas(measured_in: str | Path) -> _Metas:
    """The json of each measurement below a folder, by the name of its images."""
    found = {}
    for path, meta in read_metas(Path(measured_in).resolve()):
        found[path.parent.name if meta["dataset"] == _OF_ANY_FOLDER else meta["dataset"]] = meta
    return found


def _named(rows: pd.DataFrame, metas: _Metas) -> pd.DataFrame:
    """The rows, with a folder of images called as `metas` calls it, if it is but one."""
    names = [name for name, meta in metas.items() if meta["dataset"] == _OF_ANY_FOLDER]
    return rows.replace({"dataset": {_OF_ANY_FOLDER: names[0]}}) if len(names) == 1 else rows


def _caption(metas: _Metas, shows: str, size: str) -> Caption:
    hardware = dict.fromkeys(map(hardware_words, metas.values()))
    return Caption(
        shows=shows,
        of=(f"{', '.join(metas)} · {size} · no model",),
        n=f"n = {span(pd.Series([meta['num_images'] for meta in metas.values()]))} images each",
        hardware=" / ".join(hardware),
        storage=NOT_TIMED,
    )


def _crop_px(meta: Mapping[str, Any]) -> int:
    return int(meta["crop_size_px"])
