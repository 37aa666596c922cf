"""Whole runs with echo: epochs count fresh examples, schedules count updates, and rows report the ratio R."""

from pathlib import Path
from typing import Any

import pytest

from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.loading.echo.variants import BatchEchoConfig, ExampleAfterConfig, ExampleBeforeConfig
from pcr_exp.records.index import parse_index
from pcr_exp.runs.rows import Row, read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.training.trainer import learning_rate

ECHOES = [
    ExampleBeforeConfig(factor=2.75, buffer=40),
    ExampleBeforeConfig(factor=2, buffer=20, repeat_groups=[10]),
    ExampleAfterConfig(factor=2.75, buffer=40),
    BatchEchoConfig(factor=1.5),
]
echoes = pytest.mark.parametrize("echo", ECHOES, ids=lambda echo: f"{echo.name}-{len(echo.repeat_groups)}")


def rows_of(config: Any) -> list[Row]:
    return read_rows(run_training(config, progress=False).folder / "rows.jsonl")


@echoes
def test_epochs_count_fresh_examples_and_schedules_updates(configure: Any, echo: EchoConfig) -> None:
    config = configure(echo=echo, loader__num_workers=1, training__log_every_steps=1)
    rows = rows_of(config)
    evaluations = [row for row in rows if row["kind"] == "eval"]
    assert [row["samples_seen"] for row in evaluations] == [52, 104]
    # 52 images in batches of 16 make 4 batches; half of them, two, come once more.
    per_epoch = {"batch": 6}.get(echo.name, -(-round(52 * echo.factor) // 16))
    assert [row["step"] for row in evaluations] == [per_epoch, 2 * per_epoch]
    if echo.name != "batch":
        assert evaluations[-1]["samples_trained"] == 2 * round(52 * echo.factor)
    for row in rows:
        assert row["learning_rate"] == learning_rate(config.training, row["step"] - 1, per_epoch)
    folder = next(Path(config.records.root).iterdir()) / "train" / "pcr"
    index = parse_index((folder / "index.json").read_bytes(), "index")
    group = max([5, *echo.repeat_groups])
    assert rows[-1]["record_bytes"] == rows[-1]["bytes_read"] == 2 * index.epoch_bytes(group)


def test_rows_say_how_long_the_stages_take(configure: Any) -> None:
    config = configure(loader__num_workers=1)
    config.storage.bandwidth_mib_per_s = 0.2
    last = rows_of(config)[-1]
    assert last["upstream_s_per_sample"] == pytest.approx(
        last["record_bytes"] / last["samples_seen"] / (0.2 * 2**20), rel=0.3
    )
    assert last["downstream_s_per_sample"] >= last["train_s"] / last["samples_trained"]
    ratio = last["upstream_s_per_sample"] / last["downstream_s_per_sample"]
    assert last["upstream_ratio"] == pytest.approx(ratio)
