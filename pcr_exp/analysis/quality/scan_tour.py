"""One picture as its scans arrive. For pictures that may be shown: not for datasets of faces."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.cells import kilobytes
from pcr_exp.analysis.core.figure import new_figure
from pcr_exp.analysis.core.look import INK, MUTED, scan_color, style
from pcr_exp.images.decode import decode
from pcr_exp.images.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.images.ms_ssim import ms_ssim

PAPER_GROUPS = (1, 2, 5, 10)
PICTURE_WIDTH_IN = 2.6


def tour_scans(jpeg: bytes, groups: tuple[int, ...] = PAPER_GROUPS) -> pd.DataFrame:
    """One row per group of a progressive JPEG: group, bytes, share (of all groups' bytes), ms_ssim, image.

    `image` is uint8 [H, W, 3]; leave the column out where the table is saved.
    """
    pieces = group_pieces(split_scans(jpeg))
    reference = decode(jpeg)
    num_bytes = {group: sum(len(piece) for piece in pieces[:group]) for group in groups}
    images = {group: decode(join_pieces(pieces[:group])) for group in groups}
    whole = sum(len(piece) for piece in pieces)
    return pd.DataFrame(
        {
            "group": group,
            "bytes": num_bytes[group],
            "share": num_bytes[group] / whole,
            "ms_ssim": ms_ssim(reference, images[group]).value,
            "image": images[group],
        }
        for group in groups
    )


def draw_scan_tour(tour: pd.DataFrame) -> Figure:
    """The pictures of `tour_scans` side by side, each with its bytes and MS-SSIM."""
    height, width = tour["image"].iloc[0].shape[:2]
    with style():
        figure = new_figure(PICTURE_WIDTH_IN * len(tour), PICTURE_WIDTH_IN * height / width + 0.8)
        axes = figure.subplots(1, len(tour), squeeze=False)
        for ax, row in zip(axes.flat, tour.to_dict("records"), strict=True):
            ax.imshow(row["image"])
            ax.set(xticks=[], yticks=[])
            for spine in ax.spines.values():
                spine.set(visible=True, color=scan_color(f"group_{row['group']}"), linewidth=2.5)
            ax.set_title(f"group {row['group']}", color=INK)
            size = f"{kilobytes(row['bytes'])} ({100 * row['share']:.3g}%)"
            ax.set_xlabel(f"{size}\nMS-SSIM {row['ms_ssim']:.3f}", color=MUTED)
    return figure
