"""Measure loaders side by side on the same images; draw them. See `--help`."""

import sys
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.markdown import Markdown

from experiments.launch import launch
from pcr_exp.analysis.throughput_files import write_throughput
from pcr_exp.analysis.throughput_report import TABLE_FILE, report_throughput
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.loading.throughput.formats import by_encoding, open_workspace, original_files
from pcr_exp.loading.throughput.interleave import Contest
from pcr_exp.loading.throughput.plan import absent_peers, copied_groups, describe, plan_jobs
from pcr_exp.loading.throughput.static_copies import build_copies
from pcr_exp.runs.bars import counting_bar

_FILE_COLUMNS = 160
"""Width of the tables in a file or a pipe: narrower, loaders' names and numbers would be cut."""


def throughput(config: ThroughputConfig) -> str:
    """Build the formats, measure, and draw; returns "finished"."""
    if config.measure:
        measure(config)
    files = report_throughput(config.out)
    console = Console(width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    console.print(Markdown((Path(config.out) / TABLE_FILE).read_text()))
    for path in files:
        if path.suffix == ".png":  # PDF and CSV lie beside it
            console.print(f"figure: {path}", soft_wrap=True, highlight=False)
    return "finished"


def measure(config: ThroughputConfig) -> None:
    """One interleaved run of everything that the configuration asks for, into `config.out`."""
    jobs = plan_jobs(config)
    workers = config.loader.num_workers
    with counting_bar("records") as tell:
        workspace, records = open_workspace(
            config.dataset, Path(config.work), on_error=config.on_error, num_workers=workers, progress=tell
        )
    with Contest(workspace, jobs) as contest:
        with counting_bar("formats, warm-up") as tell:
            contest.warm_up(tell)
        formats = [
            original_files(workspace),
            *by_encoding(workspace, records),
            *contest.built.values(),
            *build_copies(workspace, copied_groups(config), workers),
        ]
        with counting_bar("measurements") as tell:
            turns = contest.rows(
                config.repeats, tell, measure_s=config.measure_s, cold_cache=config.cold_cache
            )
            rows = pd.DataFrame(turns)
    absent = {**absent_peers(config), **contest.failed}
    settings = describe(config, len(workspace.images))
    write_throughput(config.out, rows, pd.DataFrame(formats), absent, settings)


if __name__ == "__main__":
    launch(throughput, "throughput", ThroughputConfig)
