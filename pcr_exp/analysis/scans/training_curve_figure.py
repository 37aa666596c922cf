"""One run at a glance: loss and accuracy against its own clock."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from pcr_exp.analysis.core.guessing import guessing_lines
from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import INK, accuracy_axis, panel_title, scan_color, style, target_line

COLUMNS = ["kind", "train_s", "wait_s", "probe_s", "train_loss", "val_loss", "val_top1", "num_val"]


def draw_training_curve(
    rows: pd.DataFrame,
    title: str,
    scan: str,
    target_top1: float,
    majority_share: float | None = None,
    num_classes: int | None = None,
) -> Figure:
    """Losses (left) and validation top-1 (right) against train_s + wait_s + probe_s.

    `rows`: a run's rows, kinds `train` and `eval`, as logged. What guessing reaches is drawn if it is known.
    """
    with style():
        figure, (losses, accuracy) = panels(2)
        rows = rows.reindex(columns=COLUMNS)  # a run that has not evaluated yet lacks some
        rows["seconds"] = rows["train_s"] + rows["wait_s"] + rows["probe_s"]
        train, evaluated = (rows[rows["kind"] == kind] for kind in ("train", "eval"))
        color = scan_color(scan)
        losses.plot(train["seconds"], train["train_loss"], color=color, linewidth=1.2, label="training")
        losses.plot(
            evaluated["seconds"],
            evaluated["val_loss"],
            color=INK,
            marker="o",
            markersize=4,
            label="validation",
        )
        losses.set_ylabel("loss (cross-entropy)")
        losses.legend(loc="upper right")
        accuracy.plot(
            evaluated["seconds"], evaluated["val_top1"], color=color, marker="o", markeredgecolor="white"
        )
        target_line(accuracy, target_top1)
        guessed = pd.DataFrame({"majority_share": [majority_share], "num_classes": [num_classes]})
        guessing_lines(accuracy, guessed)
        accuracy_axis(accuracy)
        for ax in (losses, accuracy):
            ax.set_xlim(left=0)
            ax.set_xlabel("training + data wait (s)")
        panel_title(losses, title, "n = 1 run")
        panel_title(accuracy, " ", f"scan {scan}, n = {_num_val(evaluated)} validation images")
    return figure


def _num_val(evaluated: pd.DataFrame) -> int:
    return int(evaluated["num_val"].max()) if len(evaluated) else 0
