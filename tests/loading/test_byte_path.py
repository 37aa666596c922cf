"""The path of a sample's bytes from storage to the batch: which files of the package handle them."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from golden_batches import make_records, open_loader

import pcr_exp

PACKAGE = Path(pcr_exp.__file__).parent
MAX_FILES = 14
NUM_IMAGES = 7
ENTERED_AGAIN = {"records/groups.py", "loading/batch.py", "images/decode.py", "images/decoder.py"}
"""Files that a sample returns to. Two hold it: one step fills them, the next reads them. The codec joins
pieces and decodes them later. Its library reads the header first, and decodes once it knows the crop."""
_IN_PYTHON = {"images/libturbojpeg.py", "images/smoothing.py"}
"""These replace the library if there was no compiler."""
_DEPTH = 4


class Walk:
    """Notes every function of the package that receives, holds or returns a sample's bytes or pixels.

    Compressed bytes are recognised by sixteen bytes from the middle of a sample's first scan. Pixels are
    uint8 arrays of at least three axes.
    """

    def __init__(self, marks: list[bytes]) -> None:
        self.functions: dict[str, list[str]] = {}
        self.entered: Counter[tuple[str, str, bool]] = Counter()
        """(file, function, whether the main thread called it) -> calls from outside the file."""
        self.places: dict[bytes, set[int]] = {}
        """Addresses at which a sample's bytes were seen, by its mark."""
        self._marks = marks

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event not in ("call", "return") or not path.is_relative_to(PACKAGE):
            return
        held = [value] if event == "return" else []
        held += [each for name, each in frame.f_locals.items() if name != "self"]
        if any(self._carries(each, 0) for each in held):
            file, function = str(path.relative_to(PACKAGE)), frame.f_code.co_name
            functions = self.functions.setdefault(file, [])
            if function not in functions:
                functions.append(function)
            if event == "call" and not _is_inside(frame):
                self.entered[file, function, threading.current_thread() is threading.main_thread()] += 1

    def _carries(self, value: Any, depth: int) -> bool:
        if isinstance(value, bytes | bytearray | memoryview):
            content = bytes(value)
            found = {mark: content.find(mark) for mark in self._marks}
            for mark, offset in found.items():
                if offset >= 0:
                    address = np.frombuffer(value, dtype=np.uint8).ctypes.data + offset
                    self.places.setdefault(mark, set()).add(address)
            return max(found.values()) >= 0
        if isinstance(value, np.ndarray | torch.Tensor):
            return value.dtype in (np.uint8, torch.uint8) and value.ndim >= 3
        return depth < _DEPTH and any(self._carries(part, depth + 1) for part in _parts(value))


def _is_inside(frame: FrameType) -> bool:
    """Return whether a function of the same file is among the frame's callers."""
    caller = frame.f_back
    while caller is not None and caller.f_code.co_filename != frame.f_code.co_filename:
        caller = caller.f_back
    return caller is not None


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from value[:16]
    elif type(value).__module__.startswith("pcr_exp.") and hasattr(type(value), "__slots__"):
        yield from (getattr(value, name, None) for name in type(value).__slots__)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """The walk of a plain loader's first batch: unlimited local storage, scan group 2, no workers."""
    loader = open_loader(make_records(tmp_path_factory.mktemp("walk")), group=2)
    records = loader._records
    marks = []
    for number in range(len(records.index.records)):
        prefix = records.read_prefix(number, 1)
        for i in range(len(prefix)):
            piece = prefix.encoded(i)
            middle = (len(piece) + piece.rindex(b"\xff\xda")) // 2
            marks.append(piece[middle : middle + 16])
    noted = Walk(marks)
    before = sys.getprofile()
    threading.setprofile(noted)
    with loader:
        batches = loader.batches(0, 0, 1)
        sys.setprofile(noted)
        try:
            batch = next(batches)
        finally:
            sys.setprofile(before)
            threading.setprofile(None)
    assert batch.images.shape == (NUM_IMAGES, 24, 24, 3)
    return noted


def test_a_sample_passes_few_files(walk: Walk) -> None:
    for file, functions in walk.functions.items():
        print(f"{file}: {', '.join(functions)}")
    assert len(walk.functions) <= MAX_FILES


def test_a_sample_comes_back_to_no_function_and_to_few_files(walk: Walk) -> None:
    for (file, function, in_main_thread), num_calls in walk.entered.items():
        assert not in_main_thread or num_calls <= NUM_IMAGES, f"{file}: {function}"
    functions = Counter(file for file, _, _ in walk.entered)
    assert {file for file, num in functions.items() if num > 1} <= ENTERED_AGAIN | _IN_PYTHON


def test_the_walk_begins_at_the_storage_and_ends_at_the_batch(walk: Walk) -> None:
    files = list(walk.functions)
    assert (files[0], files[-1]) == ("storage/local.py", "loading/stream.py")
    assert {"records/reader.py", "loading/fetch.py", "loading/workers.py"} <= {*files}
    assert {"loading/reads.py", "loading/batch.py"} <= {*files}
    assert {"images/decode.py", "loading/transform.py"} <= {*files}
    assert not any(file.startswith("loading/echo/") for file in files)


def test_compressed_bytes_are_copied_once(walk: Walk) -> None:
    """The copy is from the buffer that the record was read into to the one that the batch is decoded from."""
    numbers = [len(places) for places in walk.places.values()]
    assert max(numbers) == 2
    assert numbers.count(2) >= NUM_IMAGES, "of every image of the batch"
