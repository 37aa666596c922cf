"""Measure the throughput of our scan levels, or predict a cluster's, and draw it."""

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from pcr_exp.analysis.plan_page import report_plan
from pcr_exp.analysis.throughput import FORMAT_COLUMNS, report_levels, write_throughput
from pcr_exp.cli.dry_run import Planned, num_in_files
from pcr_exp.cli.terminal import show, track_files
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.throughput.job import describe
from pcr_exp.measuring.throughput.levels import LEVELS_COUNTED, measure_levels
from pcr_exp.records.prepare import ensure_records, records_folder
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage
from pcr_exp.system.progress import counting_bar
from pcr_exp.system.words import counted

ELSEWHERE = "measured in a checkout of the repository"


def throughput(config: ThroughputConfig) -> str:
    """Predict for a cluster, or measure our scan levels in turns, and draw. Return "finished".

    Raises:
        ConfigError: a requested measurement needs a checkout, or no scan level is named.
    """
    for key, what in (("validate", "The model of throughput is"), ("one_core", "One core alone is")):
        if getattr(config, key):
            raise ConfigError(f"{key}=true: wanted false. {what} {ELSEWHERE}.")
    if config.plan is not None:
        out, files = config.plan.out, report_plan(config.plan)
    else:
        if config.measure:
            measure(config)
        out, files = config.out, report_levels(config.out)
    track_files(config.tracking, f"throughput-{Path(out).name}", Path(out), asdict(config), files)
    show(files)
    return "finished"


def measure(config: ThroughputConfig) -> None:
    """Measure every scan level, decoder and filter under every storage, in turns, into `config.out`."""
    if not config.scans:
        raise ConfigError(
            f"scans=[]: wanted at least one scan level. Loaders of other projects are {ELSEWHERE}."
        )
    records = RecordsConfig(root=config.work, on_error=config.on_error)
    with counting_bar("records") as tell:
        ensure_records(config.dataset, records, progress=tell)
    split = Path(config.work) / records_folder(config.dataset, records) / "train"
    with counting_bar("measurements") as tell:
        rows = pd.DataFrame(measure_levels(config, split, tell))
    absent = dict.fromkeys(config.peers, f"loaders of other projects are {ELSEWHERE}")
    num_images = RecordSet(LocalStorage(split), "baseline").index.num_samples
    settings = {"counted": LEVELS_COUNTED, **describe(config, num_images)}
    write_throughput(config.out, rows, pd.DataFrame(columns=FORMAT_COLUMNS), absent, settings)


def plan(config: ThroughputConfig) -> Planned:
    """Plan loaders x limits x repeats; a prediction for a cluster measures nothing."""
    if config.plan is not None:
        return Planned([f"predicts for {config.plan.name}, measures nothing"])
    if not config.measure:
        return Planned([f"draws the measurements in {config.out}"])
    num_images = num_in_files(config.dataset, ["train"])
    limits = sum(map(len, (config.bandwidths_mib_per_s, config.latencies_ms, config.requests_per_s)))
    loaders = len(config.scans) + len(config.peers)
    each = config.repeats * (loaders * 2 + (len(config.scans) + 1) * limits)
    facts = [f"{loaders} loaders, {limits} limits, {config.repeats} repeats, into {config.out}"]
    facts.append(counted(num_images, "image"))
    facts.append("a lower bound: a measurement takes at least one epoch, and formats are built first")
    return Planned(facts, {"seconds": each * config.measure_s})
