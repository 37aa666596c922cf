"""What holds for every test."""

import functools
import multiprocessing
import signal
import threading
from collections.abc import Iterator

import pytest
import torch
from hydra.core.config_store import ConfigStore
from hypothesis import HealthCheck, settings

from pcr_exp.system import provenance

pytest_plugins = ["light_figures", "record_fixtures"]
# Processes that tests start are forked from one that has imported everything: that takes seconds each. The
# first optimizer of a process imports torch._dynamo.
multiprocessing.set_forkserver_preload(
    ["pcr_exp.runs.train_run", "torch._dynamo", "torch.distributed", "pytest", "hypothesis", "skimage.data"]
)
# How long an example takes says how busy the machine is, not what is tested.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
# Hydra copies its store of schemas, in which nothing changes, for every group of a configuration.
ConfigStore.__deepcopy__ = lambda self, _memo: self  # type: ignore[attr-defined]
# Nor does the commit change, which every run that is written asks git for, three times.
provenance.git_state = functools.cache(provenance.git_state)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Many small convolutions: more threads than one cost time on a small machine."""
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """SIGINT as a program has it that was typed, here and in what a test starts.

    A shell lets a program that it starts in the background ignore it (`nohup make test &`), and that is
    inherited. Tests that send the signal would wait for what never comes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
