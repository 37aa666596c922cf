"""What a decode mode changes of the picture that training sees."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import INK, MUTED, panel_title, scan_color, style
from pcr_exp.measuring.crop_quality import summarise_crops

REFERENCE = "libjpeg"
_LOOKS = {
    "libjpeg": (INK, "s", (0, (4.0, 1.6))),
    "unsmoothed": (scan_color("group_5"), "D", "-"),
    "scaled": (scan_color("group_1"), "o", "-"),
}
"""By mode: colour, marker, dashes."""


def draw_decode_modes(crops: pd.DataFrame) -> Figure:
    """MS-SSIM of random crops (columns of `measure_crops` and `dataset`): two panels per dataset.

    Left: the mean over images per scan group. Right: each mode's mean difference to `libjpeg`,
    with two standard errors.
    """
    with style():
        datasets = sorted(crops["dataset"].unique())
        figure, axes = panels(2 * len(datasets), max_columns=2)
        for i, dataset in enumerate(datasets):
            of_dataset = crops[crops["dataset"] == dataset]
            summary = summarise_crops(of_dataset)
            means, differences = axes[2 * i], axes[2 * i + 1]
            positions = range(len(summary))
            for mode in (mode for mode in _LOOKS if mode in set(of_dataset["decode"])):
                color, marker, dashes = _LOOKS[mode]
                look: dict[str, Any] = {"color": color, "marker": marker, "linestyle": dashes, "label": mode}
                means.plot(positions, summary[f"{mode}_mean"], **look)
                if f"{mode}_minus_{REFERENCE}" in summary:
                    differences.errorbar(
                        positions,
                        summary[f"{mode}_minus_{REFERENCE}"],
                        yerr=2 * summary[f"{mode}_minus_{REFERENCE}_sem"],
                        capsize=3,
                        **look,
                    )
            facts = f"n = {summary['n'].min()} images, one random-resized-crop each"
            panel_title(means, f"{dataset} · crops by decode mode", f"{facts}; mean")
            panel_title(differences, f"{dataset} · difference to {REFERENCE}", f"{facts}; mean, 2 std errors")
            differences.axhline(0, color=MUTED, linewidth=1, linestyle=":", zorder=1)
            means.set_ylabel("MS-SSIM against all scans")
            differences.set_ylabel(f"MS-SSIM minus {REFERENCE}'s")
            for ax in (means, differences):
                ax.set_xticks(positions, [str(group) for group in summary["group"]])
                ax.set_xlabel("scan group")
                if ax.get_legend_handles_labels()[0]:
                    ax.legend()
    return figure
