"""Measure loaders side by side, or predict what a cluster's would do; draw it. See `--help`."""

from experiments.launch import launch
from pcr_exp.config.throughput import ThroughputConfig


def throughput(config: ThroughputConfig) -> str:
    """Predict for a cluster, validate the prediction, or measure loaders; draw; returns "finished"."""
    from experiments.studies import throughput as study

    return study.throughput(config)


if __name__ == "__main__":
    launch(throughput, "throughput", ThroughputConfig)
