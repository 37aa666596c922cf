"""Measure loaders side by side, and the throughput model beside several readers of one storage."""

from pathlib import Path

import pandas as pd

from pcr_exp.analysis.model.validation import add_validation
from pcr_exp.analysis.throughput.table import write_throughput
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.measuring.throughput.formats import (
    Built,
    Workspace,
    build_copies,
    by_encoding,
    open_workspace,
    original_files,
)
from pcr_exp.measuring.throughput.interleave import Contest
from pcr_exp.measuring.throughput.plan import (
    COUNTED,
    absent_peers,
    copied_groups,
    describe,
    plan_jobs,
)
from pcr_exp.measuring.throughput.shared import validation_rows
from pcr_exp.runs.bars import counting_bar


def validate(config: ThroughputConfig) -> None:
    """Measure what processes get that share a storage, and add it to `config.out`."""
    workspace, _ = workspace_of(config)
    with counting_bar("measurements") as tell:
        rows = pd.DataFrame(validation_rows(config, workspace, tell))
    settings = describe(config, len(workspace.images)) | {"settle_s": config.settle_s}
    alike = {key: value for key, value in settings.items() if key not in ("seed", "repeats")}
    add_validation(config.out, rows, alike)


def measure(config: ThroughputConfig) -> None:
    """One interleaved run of everything that the configuration asks for, into `config.out`."""
    jobs = plan_jobs(config)
    workers = config.loader.num_workers
    workspace, records = workspace_of(config)
    with Contest(workspace, jobs, peers_python=config.peers_python) as contest:
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
                config.repeats,
                tell,
                measure_s=config.measure_s,
                cold_cache=config.cold_cache,
                with_bound=config.bound,
            )
            rows = pd.DataFrame(turns)
    absent = {**absent_peers(config), **contest.failed}
    settings = {"counted": COUNTED, **describe(config, len(workspace.images))}
    write_throughput(config.out, rows, pd.DataFrame(formats), absent, settings)


def workspace_of(config: ThroughputConfig) -> tuple[Workspace, Built]:
    """The images and their records, made first if they are not there."""
    with counting_bar("records") as tell:
        return open_workspace(
            config.dataset,
            Path(config.work),
            on_error=config.on_error,
            num_workers=config.loader.num_workers,
            progress=tell,
        )
