"""Measure scan levels side by side, or predict what a cluster's would do; draw it. See `--help`."""

from pcr_exp.cli.launch import launch
from pcr_exp.config.throughput import ThroughputConfig


def throughput(config: ThroughputConfig) -> str:
    """Predict for a cluster, or measure scan levels; draw; returns "finished"."""
    from pcr_exp.cli.studies import throughput as study

    return study.throughput(config)


def main() -> None:
    """Run it as the command line says."""
    launch(throughput, "throughput", ThroughputConfig)
