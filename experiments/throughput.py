"""Measure and compare loaders, or predict the throughput of a cluster, and draw it. See `--help`."""

from dataclasses import asdict
from pathlib import Path

from pcr_exp.cli.launch import launch
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.system.lazy import LazyFunction


def throughput(config: ThroughputConfig) -> str:
    """Predict for a cluster, validate the prediction or measure loaders, then draw. Return "finished"."""
    from experiments.loaders.contest import measure
    from experiments.loaders.page import report_throughput
    from experiments.pcr.model_validation_page import report_validation
    from experiments.pcr.shared_readers import validate
    from pcr_exp.analysis.plan_page import report_plan
    from pcr_exp.cli.terminal import show, track_files

    if config.plan is not None:
        out, files = config.plan.out, report_plan(config.plan)
    elif config.validate:
        if config.measure:
            validate(config)
        out, files = config.out, report_validation(config.out, config.runs_roots)
    else:
        if config.measure:
            measure(config)
        out, files = config.out, report_throughput(config.out)
    track_files(config.tracking, f"throughput-{Path(out).name}", Path(out), asdict(config), files)
    show(files)
    return "finished"


if __name__ == "__main__":
    launch(throughput, "throughput", ThroughputConfig, LazyFunction("pcr_exp.cli.throughput", "plan"))
