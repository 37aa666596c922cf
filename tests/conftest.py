"""What holds for every test."""

import functools
import gc
import multiprocessing
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hydra.core.config_store import ConfigStore
from hypothesis import HealthCheck, settings

from pcr_exp.system import provenance

pytest_plugins = ["light_figures", "made_runs", "readers_folder", "record_fixtures"]
# Processes that tests start are forked from one that has imported everything: that takes seconds each. The
# first optimizer of a process imports torch._dynamo.
multiprocessing.set_forkserver_preload(
    ["pcr_exp.runs.train_run", "torch._dynamo", "torch.distributed", "pytest", "hypothesis", "skimage.data"]
)
# How long an example takes says how busy the machine is, not what is tested.
ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("any machine", ANY_MACHINE, max_examples=40)
settings.register_profile("thorough", ANY_MACHINE, max_examples=1000)  # --hypothesis-profile=thorough
settings.load_profile("any machine")
# Hydra copies its store of schemas, in which nothing changes, for every group of a configuration.
ConfigStore.__deepcopy__ = lambda self, _memo: self  # type: ignore[attr-defined]
# Nor does what every run that is written asks for: git, three times, and the metadata of every package.
provenance.git_state = functools.cache(provenance.git_state)
provenance.version = functools.cache(provenance.version)

LONG = ("runs", "experiments", "cli", "test_results.py", "test_readme.py", "analysis", "records", "loading")
"""Where the files lie that take longest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files: processes take whole ones, and would wait at the end for a long one."""

    def place(item: pytest.Item) -> int:
        first = item.path.relative_to(Path(__file__).parent).parts[0]
        return LONG.index(first) if first in LONG else len(LONG)

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What is imported stays: no garbage collection, here or in a forked process, need look at it again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter put away what it ends with: some libraries tell of what is left."""
    gc.unfreeze()


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
