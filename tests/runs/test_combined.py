"""PCR, echo, 3LC and compressed activations in one run of two processes, against a run without them."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
from gloo_processes import spawned

from pcr_exp.activations.quantise import QuantiseConfig
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.related_methods import ActivationsConfig, NetworkConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.gradients.threelc import ThreeLCConfig
from pcr_exp.loading.echo.variants import ExampleBeforeConfig
from pcr_exp.runs.rows import Row, read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.training.columns import TRAFFIC
from pcr_exp.training.distributed.processes import Processes

pytestmark = pytest.mark.program


def train_each(_processes: Processes, *configs: TrainConfig) -> list[str]:
    return [run_training(config, progress=False).status for config in configs]


@pytest.fixture
def both(configure: Any, tmp_path: Path) -> tuple[Row, Row]:
    """The last rows of a run with all off and of one with all on; the runs prepare the records themselves."""
    off: TrainConfig = dataclasses.replace(
        configure(
            scan=ScanConfig(name="baseline", encoding="baseline", group=1),
            storage=StorageConfig(name="slow", bandwidth_mib_per_s=5),
            activations=ActivationsConfig(interval=2),
            training__epochs=2,
            records__root=str(tmp_path / "records"),
        ),
        network=NetworkConfig(name="lan", bandwidth_mbit_per_s=1000),
        world_size=2,
    )
    on = dataclasses.replace(
        off,
        scan=ScanConfig(name="group_5", group=5),
        echo=ExampleBeforeConfig(factor=2, buffer=20),
        activations=QuantiseConfig(interval=2),
        gradients=ThreeLCConfig(sparsity=1.75),
        training=dataclasses.replace(off.training, epochs=1),
    )
    assert spawned(train_each, 2, off, on) == [["finished", "finished"]] * 2
    rows = [
        read_rows(path / "rows.jsonl")
        for path in sorted((tmp_path / "runs").iterdir(), key=lambda path: "threelc" in path.name)
    ]
    shutil.rmtree(tmp_path / "records")
    return rows[0][-1], rows[1][-1]


def test_all_four_save_bytes_in_one_run_each_at_its_place(both: tuple[Row, Row]) -> None:
    off, on = both
    assert off.keys() == on.keys() >= {*TRAFFIC, "network_s"}
    assert off["step"] == on["step"] == 4
    assert (off["samples_seen"], off["samples_trained"]) == (104, 104)
    assert (on["samples_seen"], on["samples_trained"]) == (52, 104)
    assert on["bytes_read"] < 0.5 * off["bytes_read"]  # half the photographs, and only some scans of them
    assert off["pushed_values"] == on["pushed_values"]
    assert on["bytes_sent"] < 0.2 * off["bytes_sent"]
    assert on["kept_bytes_mean"] < 0.95 * off["kept_bytes_mean"]
    assert off["kept_bytes_max"] == off["kept_bytes_mean"]
