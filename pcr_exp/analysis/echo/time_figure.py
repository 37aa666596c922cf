"""What echoing costs and saves in time (Choi et al. 2019, figure 4), with the cost model drawn beside it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcr_exp.analysis.core.panels import panels
from pcr_exp.analysis.core.style import panel_title, style
from pcr_exp.analysis.echo.lines_figure import draw_points, series, target_of, x_axis
from pcr_exp.analysis.echo.look_figure import echo_panels, look_of, variant_of


def draw_echo_time(summary: pd.DataFrame) -> Figure:
    """Three panels per setting against the echo factor, of `tuned` by fresh_to_target.

    Milliseconds of training and waiting per fresh example, over max(t_up, e x t_down), which is drawn from
    the means of the measured t_up and t_down of each variant's runs; seconds to the target; fresh examples
    to the target.
    """
    with style():
        facts = list(echo_panels(summary))
        figure, axes = panels(3 * len(facts))
        for number, (title, subtitle, rows) in enumerate(facts):
            pace, seconds, fresh = axes[3 * number : 3 * number + 3]
            for name, line in series(rows, "factor"):
                in_ms = line.assign(
                    **{f"ms_{part}": 1e3 * line[f"s_per_fresh_{part}"] for part in ("mean", "min", "max")}
                )
                draw_points(pace, in_ms, "factor", "ms", name)
                draw_bound(pace, line)
                draw_points(seconds, line, "factor", "time_to_target_s", name)
                draw_points(fresh, line, "factor", "fresh_to_target", name)
            pace.set_ylabel("ms per fresh example")
            seconds.set_ylabel("training + data wait to target (s)")
            fresh.set_ylabel("fresh examples to target")
            for ax in (pace, seconds, fresh):
                ax.set_ylim(bottom=0)
                x_axis(ax, rows, "factor")
            pace.legend(loc="best")
            ratio = rows["upstream_ratio_mean"].mean()
            panel_title(pace, title, f"lines: max(t_up, e t_down), measured; mean R = {ratio:.2g}")
            panel_title(seconds, " ", target_of(rows))
            panel_title(fresh, " ", subtitle)
    return figure


def draw_bound(ax: Axes, line: pd.DataFrame) -> None:
    """max(t_up, e x t_down) in ms, of the means over a line's runs."""
    factors = np.geomspace(line["factor"].min(), line["factor"].max(), 100)
    bound = bound_ms(
        factors, line["upstream_s_per_sample_mean"].mean(), line["downstream_s_per_sample_mean"].mean()
    )
    color = look_of(variant_of(line.iloc[-1].to_dict()))["color"]
    ax.plot(factors, bound, color=color, linewidth=1, linestyle=":", zorder=1)


def bound_ms(factors: np.ndarray, upstream_s: float, downstream_s: float) -> np.ndarray:
    """Least milliseconds per fresh example with stages that overlap (Choi et al. 2019, section 2)."""
    return 1e3 * np.maximum(upstream_s, factors * downstream_s)
