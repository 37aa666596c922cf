from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import pytest
import torch

matplotlib.use("Agg")


@pytest.fixture(autouse=True, scope="session")
def one_torch_thread() -> Iterator[None]:
    """Many small convolutions: more threads than one cost time on a small machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
