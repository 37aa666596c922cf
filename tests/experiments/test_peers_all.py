"""Other loaders yield each image once per epoch, in a new order each time, in the requested form.

Loaders that are not installed are skipped, with the reason that the runner gives.
"""

import importlib.util
import io
import multiprocessing
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image
from throughput_jobs import job

from experiments.loaders.peers.catalogue import (
    PEERS,
    SourceImage,
    absence,
    differs_of,
    format_of,
    open_format,
    open_peer,
)

NUM_IMAGES = 42
STEP = 6
"""Difference in grey level between successive images."""

WITH_PROCESSES = ("image_folder_pil", "image_folder_torchvision", "webdataset", "streaming", "litdata")
MIXED = ("streaming", "litdata")
"""Loaders whose epochs form one long epoch that contains every image once per epoch."""
COMPILES = [
    pytest.mark.slow,  # half a minute
    # numba's finalizers raise errors when a loader with other settings replaces the first.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def write_greys(folder: Path) -> list[SourceImage]:
    """Write images of one grey level each, which survives any crop and so identifies the image."""
    folder.mkdir()
    images = []
    for i in range(NUM_IMAGES):
        jpeg = io.BytesIO()
        Image.new("RGB", (40 + i, 32), (STEP * i,) * 3).save(jpeg, "JPEG")
        path = folder / f"{i}.jpg"
        path.write_bytes(jpeg.getvalue())
        images.append(SourceImage(str(path), i % 2))
    return images


@pytest.fixture(
    params=[pytest.param(name, marks=COMPILES if name.startswith("ffcv") else []) for name in PEERS]
)
def peer(request: pytest.FixtureRequest) -> str:
    reason = absence(request.param)
    if reason is not None:
        pytest.skip(reason)
    return request.param


@pytest.fixture
def built(peer: str, tmp_path: Path) -> Path:
    folder = tmp_path / format_of(peer)
    folder.mkdir()
    open_format(peer).build(write_greys(tmp_path / "images"), folder)
    return folder


def epochs_of(peer: str, folder: Path, num_workers: int, num_epochs: int) -> list[list[int]]:
    """Return the numbers of the images in order of arrival, by epoch; a batch may span two epochs."""
    wanted = job(peer, PEERS[peer].decode, num_workers, num_epochs=num_epochs)
    seen: list[int] = []
    for batch in open_peer(peer).batches(folder, wanted):
        images = np.asarray(batch)
        assert images.dtype == np.uint8 and images.shape[1:] in ((3, 16, 16), (16, 16, 3))
        assert 1 <= len(images) <= 4
        seen += [round(level / STEP) for level in images.reshape(len(images), -1).mean(axis=1)]
    assert len(seen) == num_epochs * NUM_IMAGES
    return [seen[start : start + NUM_IMAGES] for start in range(0, len(seen), NUM_IMAGES)]


def test_every_image_comes_once_per_epoch_and_orders_differ(peer: str, built: Path) -> None:
    every = list(range(NUM_IMAGES))
    epochs = epochs_of(peer, built, num_workers=2, num_epochs=2)
    assert sorted(epochs[0] + epochs[1]) == sorted(every + every)
    assert peer in MIXED or [sorted(epoch) for epoch in epochs] == [every, every]
    assert epochs[0] != epochs[1] and every not in epochs
    # Measure again in the same process, as the runner does.
    assert sorted(epochs_of(peer, built, num_workers=2, num_epochs=1)[0]) == every


@pytest.mark.parametrize("peer", WITH_PROCESSES, indirect=True)
def test_without_workers_too(peer: str, built: Path) -> None:
    epochs = epochs_of(peer, built, num_workers=0, num_epochs=1)
    assert sorted(epochs[0]) == list(range(NUM_IMAGES))


@pytest.mark.parametrize("peer", WITH_PROCESSES, indirect=True)
def test_workers_have_ended_when_batches_have(peer: str, built: Path) -> None:
    """Their CPU seconds are then known, even if an epoch was abandoned in the middle."""
    for whole in (True, False):
        batches = cast(Generator[Any], open_peer(peer).batches(built, job(peer, PEERS[peer].decode, 2)))
        next(batches)
        assert len(multiprocessing.active_children()) >= 2
        assert not whole or [*batches]
        batches.close()
        assert multiprocessing.active_children() == []


def test_the_source_images_are_stored_as_they_are(peer: str, built: Path) -> None:
    """Every format has the unchanged bytes, so all peers decode the same images, or their row says LOSSY."""
    stored = b"".join(path.read_bytes() for path in sorted(built.rglob("*")) if path.is_file())
    missing = [path.name for path in (built.parent / "images").iterdir() if path.read_bytes() not in stored]
    assert missing == [] or "LOSSY" in differs_of(peer)


def test_a_colour_space_that_ffcv_cannot_decode_is_converted() -> None:
    pytest.importorskip("ffcv", reason=str(absence("ffcv")))
    from experiments.loaders.peers.beton import _JpegField

    jpeg = io.BytesIO()
    Image.new("CMYK", (40, 32), (0, 0, 0, 55)).save(jpeg, "JPEG")
    stored = np.zeros(10_000, np.uint8)
    destination: dict[str, int] = {}
    sizes = []

    def malloc(size: int) -> tuple[int, np.ndarray]:
        sizes.append(size)
        return 0, stored[:size]

    _JpegField().encode(destination, jpeg.getvalue(), malloc)
    with Image.open(io.BytesIO(stored[: sizes[0]].tobytes())) as image:
        assert image.mode == "RGB" and image.size == (40, 32)
        assert np.abs(np.asarray(image).astype(int) - 200).max() <= 2
    assert (destination["width"], destination["height"]) == (40, 32)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("webdataset", r"webdataset is not installed: pip install 'pcr-exp\[peers\]'"),
        ("streaming", r"streaming is not installed: pip install 'pcr-exp\[peers\]'"),
        ("image_folder_torchcodec", r"torchcodec is not installed: pip install 'pcr-exp\[peers\]'"),
        ("tfrecord", r"tensorflow is not installed: pip install 'pcr-exp\[peers\]'"),
        ("litdata", r"litdata is not installed: pip install 'pcr-exp\[peers\]'"),
        ("dali", r"nvidia\.dali is not installed: pip install 'pcr-exp\[peers\]'"),
        ("ffcv", r"ffcv is not installed: .*libturbojpeg0-dev.* pip install 'pcr-exp\[peers-ffcv\]'"),
    ],
)
@pytest.mark.parametrize("parent_is_there", [True, False])
def test_a_peer_that_is_not_installed_says_what_to_do(
    name: str, reason: str, parent_is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(package: str) -> None:
        if not parent_is_there:
            raise ModuleNotFoundError(package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    assert re.fullmatch(reason, str(absence(name)))


def test_what_the_project_needs_itself_is_never_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert absence("image_folder_pil") is absence("image_folder_torchvision") is absence("group_5") is None
