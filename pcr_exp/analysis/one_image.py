"""One image at increasing scan groups: bytes, MS-SSIM and appearance (PCR figure 3)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pcr_exp.analysis.caption import NOT_TIMED, Caption
from pcr_exp.analysis.figure import footer, new_figure, save_figure
from pcr_exp.analysis.style import group_color, style
from pcr_exp.analysis.tables import kilobytes
from pcr_exp.datasets.photos import SOURCE_FILES, load_photo
from pcr_exp.errors import ConfigError
from pcr_exp.images.decode import decode
from pcr_exp.images.jpeg import group_pieces, join_pieces, split_scans
from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.images.transcode import to_progressive

PAPER_GROUPS = (1, 2, 5, 10)
JPEG_QUALITY = 90
"""JPEG quality for the photographs that scikit-image ships as PNG files."""
DETAIL_SHARE = 0.25
"""Side of the enlarged detail, as a share of the image's smaller side."""
NAME = "sample_image"
IMAGE_WIDTH_IN = 2.6
_WORDS_IN = 1.3


def read_jpeg(name: str) -> bytes:
    """Return the bytes of a JPEG file: a scikit-image photograph given by name, or a file given by path.

    Raises:
        ConfigError: neither exists.
    """
    if name in SOURCE_FILES:
        from pcr_exp.datasets.photo_crops import encode_jpeg

        return encode_jpeg(load_photo(name), JPEG_QUALITY)
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(
            f"image={name}: no such file; wanted a JPEG file, or one of {', '.join(sorted(SOURCE_FILES))}."
        )
    return path.read_bytes()


def write_sample_image(name: str, groups: Iterable[int], out: Path) -> list[Path]:
    """Draw an image at several scan groups as `sample_image.{pdf,png,csv}`; return the files.

    Args:
        name: As in `read_jpeg`. The image is transcoded without loss; a file is never changed.
        groups: Scan groups, from few bytes to many.
        out: Folder, created if it does not exist.

    Raises:
        ConfigError: as in `read_jpeg`.
        ImageError: the file is not a JPEG that can be transcoded.
    """
    jpeg = read_jpeg(name)
    tour = tour_scans(to_progressive(jpeg), tuple(groups))
    table = tour.drop(columns="image").assign(original_bytes=len(jpeg))
    height_px, width_px = tour["image"].iloc[0].shape[:2]
    shown = ", ".join(str(group) for group in tour["group"])
    caption = Caption(
        shows=f"One file, read up to scan group {shown}",
        of=(f"{Path(name).stem} · {width_px} x {height_px} px · no model",),
        n="n = 1 image",
        hardware="any hardware: bytes and MS-SSIM do not depend on it",
        storage=NOT_TIMED,
    )
    return save_figure(lambda _: draw_scan_tour(tour), table, out, NAME, caption)


def tour_scans(jpeg: bytes, groups: tuple[int, ...] = PAPER_GROUPS) -> pd.DataFrame:
    """Return one row per group of a progressive JPEG: group, bytes, share of all bytes, ms_ssim, image.

    `image` is uint8 [H, W, 3]; drop this column before saving the table.
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
    """Draw the images of `tour_scans` side by side with bytes, MS-SSIM and an enlarged detail of each."""
    height, width = tour["image"].iloc[0].shape[:2]
    top, left, side = most_changed_square(tour["image"].iloc[0], tour["image"].iloc[-1])
    with style():
        heights = [IMAGE_WIDTH_IN * height / width, IMAGE_WIDTH_IN]
        figure = new_figure(IMAGE_WIDTH_IN * len(tour), sum(heights) + _WORDS_IN)
        rows = figure.subplots(2, len(tour), squeeze=False, height_ratios=heights)
        for whole, detail, row in zip(*rows, tour.to_dict("records"), strict=True):
            color = group_color(row["group"])
            _show(whole, row["image"], color)
            _show(detail, row["image"][top : top + side, left : left + side], color)
            whole.add_patch(Rectangle((left, top), side, side, fill=False, edgecolor="white", linewidth=1))
            whole.set_title(f"group {row['group']} · {kilobytes(row['bytes'])}")
            whole.set_xlabel(f"{100 * row['share']:.3g}% of the bytes, MS-SSIM {row['ms_ssim']:.3f}")
        footer(
            figure,
            "MS-SSIM of the whole image against all scans. Enlarged: where first and last differ most.",
        )
    return figure


def most_changed_square(first: np.ndarray, last: np.ndarray) -> tuple[int, int, int]:
    """Return top, left and side in px of the square where two images differ most; see DETAIL_SHARE."""
    height, width = first.shape[:2]
    side = max(1, round(DETAIL_SHARE * min(height, width)))
    squares = ((first.astype(np.float64) - last) ** 2).sum(axis=2)
    sums = np.pad(squares, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    windows = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    top, left = np.unravel_index(np.argmax(windows), windows.shape)
    return int(top), int(left), side


def _show(ax: Axes, image: np.ndarray, color: str) -> None:
    ax.imshow(image, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set(visible=True, color=color, linewidth=2.5)
