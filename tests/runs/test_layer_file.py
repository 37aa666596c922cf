"""A run's file of compressed layers, written with its checkpoints."""

from pathlib import Path
from typing import Any

import pandas as pd

from pcr_exp.activations.quantise import QuantiseConfig
from pcr_exp.config.training import ModelConfig
from pcr_exp.runs.directory import write_layers
from pcr_exp.runs.train_run import run_training


def test_a_run_writes_what_its_layers_were_like(configure: Any) -> None:
    config = configure(training__epochs=1, model=ModelConfig(name="shufflenet_v2_x0_5"))
    config.activations = QuantiseConfig(interval=2)
    outcome = run_training(config, progress=False)
    layers = pd.read_csv(outcome.folder / "activations.csv")
    assert sorted(set(layers["step"])) == [0, 2]
    assert 0 < layers["packed_bytes"].sum() < 0.7 * layers["raw_bytes"].sum()
    assert layers["held_bytes"].sum() == 0
    assert layers["layer"].nunique() == len(layers) / 2 > 50


def test_a_run_that_compresses_nothing_gets_no_file(tmp_path: Path) -> None:
    write_layers(tmp_path / "activations.csv", [])
    assert list(tmp_path.iterdir()) == []
