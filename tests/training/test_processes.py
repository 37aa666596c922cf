"""Errors if one process is asked to communicate, or if the configuration has another process count."""

import os
import socket
import subprocess
import sys

import pytest
import torch

from pcr_exp.config.related_methods import GradientsConfig, NetworkConfig
from pcr_exp.errors import ConfigError
from pcr_exp.gradients.threelc import ThreeLCConfig
from pcr_exp.training.distributed.exchange import Exchange
from pcr_exp.training.distributed.open import check_exchange, open_exchange
from pcr_exp.training.distributed.processes import Processes, backend_for, ended_ranks, join_processes


@pytest.mark.parametrize(
    ("gradients", "network", "message"),
    [
        (
            ThreeLCConfig(),
            NetworkConfig(),
            r"gradients=threelc \(mode ddp\): .*there is only one process\. Use gradients=none, or start",
        ),
        (GradientsConfig(mode="server"), NetworkConfig(), r"gradients=none \(mode server\): .*one process"),
        (
            GradientsConfig(),
            NetworkConfig(name="10mbit", bandwidth_mbit_per_s=10),
            "network=10mbit: it s",
        ),
    ],
)
def test_one_process_has_nobody_to_send_to(
    gradients: GradientsConfig, network: NetworkConfig, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_exchange(gradients, network, 1, 1)
    check_exchange(gradients, network, 2, 2)


def test_one_process_alone_exchanges_nothing() -> None:
    check_exchange(GradientsConfig(), NetworkConfig(), 1, 4)
    exchange = open_exchange(GradientsConfig(), NetworkConfig(), Processes(), seed=0)
    assert type(exchange) is Exchange
    assert exchange.traffic is None


def test_codecs_are_given_one_batch_of_each_process() -> None:
    for gradients in (GradientsConfig(name="bf16"), GradientsConfig(mode="server")):
        message = rf"gradients={gradients.name} .* with 2 batches per process .* Start 4 processes"
        with pytest.raises(ConfigError, match=message):
            check_exchange(gradients, NetworkConfig(), 2, 4)
    check_exchange(GradientsConfig(), NetworkConfig(name="10mbit", bandwidth_mbit_per_s=10), 2, 4)


@pytest.mark.parametrize(("world_size", "started"), [(2, None), (2, "3"), (1, "2")])
def test_the_configuration_must_know_how_many_were_started(
    world_size: int, started: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if started is not None:
        monkeypatch.setenv("WORLD_SIZE", started)
    message = rf"world_size={world_size}, but {started or 1} process\(es\) were started.*torchrun --nproc-per"
    with pytest.raises(ConfigError, match=message):
        join_processes(world_size)


def test_one_process_talks_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    alone = join_processes(1)
    assert alone.first
    assert alone.totals([1.5, 2.0]) == [1.5, 2.0]
    assert alone.any(True) is True
    assert alone.from_first(lambda: "made") == "made"
    assert alone.gather("own") == ["own"]


def test_nccl_sums_where_every_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert backend_for(2) == "gloo"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    assert [backend_for(per_host) for per_host in (1, 2, 3)] == 2 * ["cpu:gloo,cuda:nccl"] + ["gloo"]


def test_processes_that_have_ended_are_named_by_rank() -> None:
    here = socket.gethostname()
    ended = subprocess.Popen([sys.executable, "-c", "pass"])  # not waited for, so it stays a zombie
    places = ((here, os.getpid()), (here, ended.pid), ("elsewhere", ended.pid))
    assert ended_ranks(Processes(0, 3, 2, places)) == f"rank 1 (process {ended.pid} on {here})"
    ended.wait()
    assert ended_ranks(Processes(0, 3, 2, places)) == f"rank 1 (process {ended.pid} on {here})"
