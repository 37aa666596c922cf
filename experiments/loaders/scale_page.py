"""Scale: 1 to 1,024 workers on one storage, simulated and by the planner's formula; the cost of an order.

    python -m experiments.loaders.scale_page                       # the simulation and its figure
    python -m experiments.loaders.scale_page 1000000 10000000      # also measure the cost for these sizes

The formula is min(workers x a worker's images/s, bandwidth / bytes per image, requests/s x images per read).
It ignores the start and end of an epoch, and records that several workers read to use a part of each.
"""

from __future__ import annotations

import itertools
import math
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.loaders.order_cost import measure, record_sizes
from experiments.loaders.scale import Machine, Reads, never_evicted, reads_of_an_epoch, simulate
from experiments.results.made_by import recorded_hardware
from experiments.results.study import Study
from pcr_exp.analysis.caption import NOT_TIMED, Caption
from pcr_exp.analysis.figure import BELOW, footer, new_figure, panel_title, panels, save_figure
from pcr_exp.analysis.plan import bandwidth_images_per_s, images_per_s
from pcr_exp.analysis.style import OTHER_STYLES, group_color, group_marker, style
from pcr_exp.system import MIB

WORKERS = [2**power for power in range(11)]
IMAGE_BYTES = {1: 6600, 2: 15400, 5: 49800, 10: 107900}
"""Mean bytes by scan group of 1,000 native ImageNet images, as in configs/plan/paper_cluster.yaml."""
NUM_IMAGES, IMAGES_PER_RECORD, SMALL_RECORD = 1_281_167, 1024, 64
BATCH_SIZE, RECORDS_AHEAD = 32, 4
STORAGES = {
    "Ceph, 400 MiB/s, 5 ms": Machine(400 * MIB, 0.005, math.inf, 424.0),
    "object store, 10 GiB/s, 50 ms": Machine(10240 * MIB, 0.05, 5500.0, 424.0),
}
"""Workers train ResNet-18 at 424 images/s, the planner's figure for the paper's cluster."""
CACHED_SHARES = (0.0, 0.25)
SIMULATED, COST = "simulated", "order_cost"


def simulated_table(workers: Sequence[int] = WORKERS, num_images: int = NUM_IMAGES) -> pd.DataFrame:
    """Return a row for each storage, record size, scan group, cached share and number of workers."""
    order = ["storage", "images_per_record", "group", "cached_share", "num_workers"]
    return pd.DataFrame(_rows(workers, num_images)).sort_values(order, ignore_index=True)


def _rows(workers: Sequence[int], num_images: int) -> Iterator[dict[str, Any]]:
    for per_record, num in itertools.product((IMAGES_PER_RECORD, SMALL_RECORD), workers):
        sizes = record_sizes(num_images, per_record)
        reads = reads_of_an_epoch(
            sizes, num_workers=num, batch_size=BATCH_SIZE, window=1, records_ahead=RECORDS_AHEAD
        )
        shares = CACHED_SHARES if per_record == IMAGES_PER_RECORD else (0.0,)
        for storage, group, share in itertools.product(STORAGES, IMAGE_BYTES, shares):
            of = {"storage": storage, "images_per_record": per_record, "group": group, "cached_share": share}
            cell = _cell(STORAGES[storage], reads, sizes, IMAGE_BYTES[group], share, num)
            yield {**of, "num_workers": num, **cell}


def _cell(
    machine: Machine,
    reads: Reads,
    sizes: Sequence[int],
    image_bytes: float,
    cached_share: float,
    num_workers: int,
) -> dict[str, Any]:
    record_bytes = np.array(sizes, dtype=np.float64) * image_bytes
    cached = never_evicted(record_bytes, cached_share * record_bytes.sum())
    found = simulate(machine, reads, record_bytes, cached)
    read_bytes = image_bytes * (1 - cached_share)
    limits = {
        "workers": num_workers * machine.worker_images_per_s,
        "bandwidth": bandwidth_images_per_s(machine.bandwidth_bytes_per_s, read_bytes),
        "requests": machine.requests_per_s * sizes[0] / (1 - cached_share),
    }
    formula, limit = images_per_s(limits)
    return {
        "images_per_s": found.images_per_s,
        "formula_images_per_s": formula,
        "limit": limit,
        "share_of_formula": found.images_per_s / formula,
        "first_batch_s": found.first_batch_s,
        "wait_share": 1 - found.busy_s / found.seconds,
        "read_bytes_per_image": found.bytes_read / found.num_images,
        "reads_per_record": found.num_reads / len(sizes),
    }


def draw_simulated(rows: pd.DataFrame) -> Figure:
    """Draw images/s against workers, with a panel per storage and record size; lines are the formula."""
    rows = rows[rows["cached_share"] == 0]
    with style():
        groups = list(rows.groupby(["storage", "images_per_record"], sort=False))
        figure, axes = panels(len(groups), 2)
        for ax, ((storage, per_record), panel) in zip(axes, groups, strict=True):
            for group, line in panel.groupby("group"):
                color, marker = group_color(int(str(group))), group_marker(int(str(group)))
                line = line.set_index("num_workers")
                ax.plot(line["formula_images_per_s"], color=color, linewidth=1, alpha=0.6)
                ax.plot(line["images_per_s"], marker, color=color, label=f"group {group}")
            ax.set(xscale="log", yscale="log", xlabel="workers", ylabel="images/s")
            panel_title(ax, str(storage), f"{per_record} images per record")
        axes[0].legend(**BELOW, ncols=4)
        footer(
            figure,
            "points: simulated, one epoch of ImageNet in the loader's order; lines: the planner's formula",
        )
    return figure


def draw_cost(rows: pd.DataFrame) -> Figure:
    """Draw measured memory and CPU seconds against the number of images."""
    with style():
        figure = new_figure(7.0, 3.2)
        axes = figure.subplots(1, 2)
        for ax, column, words in zip(
            axes, ("peak_mib", "cpu_s"), ("MiB at the peak", "CPU seconds"), strict=True
        ):
            for (color, marker), (what, line) in zip(OTHER_STYLES, rows.groupby("what"), strict=False):
                words_of = str(what).replace("_", " ")
                ax.plot(line["num_images"], line[column], color=color, marker=marker, label=words_of)
            ax.set(xscale="log", yscale="log", xlabel="images", ylabel=words)
        axes[0].legend(**BELOW)
        footer(
            figure,
            "measured, each point in a process of its own; 1,024 images per record, 8 lanes, ten groups",
        )
    return figure


def redraw_scale(folder: Path, out: Path) -> None:
    """Redraw the figures from a folder's committed tables."""
    for name in (SIMULATED, COST):
        _save(pd.read_csv(folder / f"{name}.csv"), name, folder, out)


def _save(rows: pd.DataFrame, name: str, folder: Path, out: Path) -> None:
    """Draw a table of `folder` into `out`, with the hardware that made_by.yaml names."""
    if name == SIMULATED:
        caption = Caption(
            shows="Images/s over workers that share one storage",
            of=("imagenet · no task · resnet18's rate · no crops",),
            n="n = 1 epoch, simulated",
            hardware="simulated: workers as in the plan of the paper's cluster",
            storage=f"storage: {' / '.join(rows['storage'].unique())}, in MiB/s",
        )
        save_figure(draw_simulated, rows, out, name, caption)
        return
    repeats = rows.groupby(["what", "num_images"]).size().max()
    caption = Caption(
        shows="What an order and an index of so many images cost",
        of=("indices alone · no task · no model · no crops",),
        n=f"n = {repeats} of each size",
        hardware=recorded_hardware(folder),
        storage=NOT_TIMED,
    )
    save_figure(draw_cost, rows, out, name, caption)


def write(given: Namespace) -> None:
    """Write the tables and figures."""
    given.out.mkdir(parents=True, exist_ok=True)
    if given.sizes:
        cost = pd.DataFrame([row for size in given.sizes for row in measure(size)])
        _save(cost, COST, given.out, given.out)
    _save(simulated_table(), SIMULATED, given.out, given.out)


main = Study(__doc__, "outputs/scale", write, repeats=None, images=False)
main.add("sizes", nargs="*", type=int, help="numbers of images whose order and index are measured")


if __name__ == "__main__":
    main()
