"""What holds for every test."""

import signal
import threading
from collections.abc import Iterator

import pytest
import torch

pytest_plugins = ["record_fixtures"]


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
