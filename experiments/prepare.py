"""Encode a dataset's JPEG files as records. See `--help`."""

from experiments.launch import launch
from pcr_exp.config import PrepareConfig
from pcr_exp.records.prepare import prepare_records


def prepare(config: PrepareConfig) -> str:
    """Encode train and val in both encodings; returns "finished"."""
    folder = prepare_records(config.dataset, config.records)
    print(folder)
    return "finished"


if __name__ == "__main__":
    launch(prepare, "prepare", PrepareConfig)
