"""Setup shared by all tests."""

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
# Fork the processes that tests start from one that has imported these modules, which takes seconds. The first
# optimizer of a process imports torch._dynamo.
multiprocessing.set_forkserver_preload(
    ["pcr_exp.runs.train_run", "torch._dynamo", "torch.distributed", "pytest", "hypothesis", "skimage.data"]
)
# The duration of an example depends on how busy the machine is, not only on the code under test.
ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("any machine", ANY_MACHINE, max_examples=40)
settings.register_profile("thorough", ANY_MACHINE, max_examples=1000)  # --hypothesis-profile=thorough
settings.load_profile("any machine")
# Hydra deep-copies its store of schemas, which never changes, for every group of a configuration.
ConfigStore.__deepcopy__ = lambda self, _memo: self  # type: ignore[attr-defined]
# Nor does provenance change. Every written run calls git three times and reads every package's metadata.
provenance.git_state = functools.cache(provenance.git_state)
provenance.version = functools.cache(provenance.version)

LONG = ("runs", "experiments", "cli", "test_results.py", "test_readme.py", "analysis", "records", "loading")
"""Folders and files with the slowest tests, in the order in which they run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest files first. Workers take whole files, so a long one last would keep others idle."""

    def place(item: pytest.Item) -> int:
        first = item.path.relative_to(Path(__file__).parent).parts[0]
        return LONG.index(first) if first in LONG else len(LONG)

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Exempt imported objects from garbage collection, here and in forked processes."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter collect all objects at exit: some libraries report those that are left."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Use one thread: with many small convolutions, more threads cost time on a small machine."""
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Handle SIGINT as in a program started at a prompt, here and in processes that a test starts.

    A shell makes programs that it starts in the background ignore SIGINT (`nohup make test &`), and their
    children inherit this. Tests that send the signal would then wait for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
