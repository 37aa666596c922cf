"""The same images in every compared format, each built once, with its size and build time recorded."""

from __future__ import annotations

import io
import json
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from PIL import Image

from experiments.loaders.peers.catalogue import OURS, SourceImage
from experiments.loaders.process import LoaderProcess
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.datasets.sample import Dataset, open_dataset
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.quality import spread_evenly
from pcr_exp.records.encode import Progress, encode_split, no_progress
from pcr_exp.records.fingerprint import file_size, fingerprint
from pcr_exp.records.markers import read_rejected
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.writer import ENCODINGS
from pcr_exp.storage.local import LocalStorage
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.machine import own_cpu_s

IMAGES_FILE = "images.json"
_SPLIT = "train"


Build = Callable[[Path], tuple[float, float] | None]
"""Writes a format into a folder; may return its own (seconds, CPU seconds) in place of the caller's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """All images on disk in one format."""

    format: str
    num_images: int
    num_files: int
    num_bytes: int
    """Sum of the files' lengths."""
    build_s: float | None
    """Wall-clock seconds of the build; None if it was resumed, or came with the dataset or another format."""
    build_cpu_s: float | None


@dataclass(frozen=True, slots=True)
class Workspace:
    """A folder with a subfolder per format."""

    folder: Path
    images: list[SourceImage]
    """Images of every format: the dataset's training images that records can store."""

    def format_folder(self, name: str) -> Path:
        """Return the folder of a format."""
        return self.folder / name


def open_workspace(
    config: DatasetConfig, work: Path, *, on_error: str, num_workers: int, progress: Progress = no_progress
) -> tuple[Workspace, Built]:
    """Open the dataset's workspace below `work` and its records, which are built first if missing.

    Raises:
        ConfigError, DatasetError: as `open_dataset`; ConfigError also if files hold several images each.
        ImageError, RecordError, StorageError: as `encode_split`.
    """
    dataset = open_dataset(config)
    if any(sample.packed is not None for sample in dataset.train):
        raise ConfigError(
            f"dataset={dataset.name}: its images lie in files that hold many, and the formats that are "
            "compared are made of files of one image each. Choose a dataset of such files, for instance "
            "dataset=folder."
        )
    tasks = [(sample, file_size(sample.path)) for sample in dataset.train]
    per_record = config.images_per_record
    key = fingerprint(
        tasks, dataset.classes, dataset=dataset.name, split=_SPLIT, images_per_record=per_record
    )
    folder = work / f"{dataset.name}-{key}"
    records = folder / OURS

    def encode(_: Path) -> None:
        encode_split(
            dataset.train,
            dataset.classes,
            records,
            dataset=dataset.name,
            split=_SPLIT,
            images_per_record=per_record,
            on_error=on_error,
            num_workers=num_workers,
            progress=progress,
        )

    built = _build_once(folder, OURS, len(dataset.train), encode)
    workspace = Workspace(folder, _stored(dataset, config.label, records))
    write_atomic(folder / IMAGES_FILE, [json.dumps(workspace.images).encode()])
    return workspace, replace(built, num_images=len(workspace.images))


def build_format(workspace: Workspace, name: str, process: LoaderProcess) -> Built:
    """Build a peer's format in its loader's process, unless it exists.

    Raises:
        LoaderError: it cannot be built.
    """

    def build(folder: Path) -> tuple[float, float]:
        images = workspace.folder / IMAGES_FILE
        took = process.ask(
            {"do": "build", "loader": process.name, "folder": str(folder), "images": str(images)}
        )
        return took["build_s"], took["build_cpu_s"]

    return build_once(workspace, name, build)


def build_once(workspace: Workspace, name: str, build: Build) -> Built:
    """Build a format in a new folder, unless it exists; return what was recorded when it was built."""
    return _build_once(workspace.folder, name, len(workspace.images), build)


def _build_once(parent: Path, name: str, num_images: int, build: Build) -> Built:
    folder, note = parent / name, parent / f"{name}.json"
    if note.exists():
        return Built(**json.loads(note.read_text()))
    if name != OURS:
        shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    # A stopped encode continues, so timing the rest of it would not give the whole.
    is_whole = not any(folder.iterdir())
    started_s, started_cpu_s = time.perf_counter(), own_cpu_s()
    seconds = build(folder) or (time.perf_counter() - started_s, own_cpu_s() - started_cpu_s)
    files = list_files(folder)
    built = Built(
        format=name,
        num_images=num_images,
        num_files=len(files),
        num_bytes=sum(file.stat().st_size for file in files),
        build_s=seconds[0] if is_whole else None,
        build_cpu_s=seconds[1] if is_whole else None,
    )
    write_atomic(note, [json.dumps(asdict(built), indent=2).encode() + b"\n"])
    return built


def original_files(workspace: Workspace) -> Built:
    """Return the entry of the dataset's original JPEG files."""
    num_bytes = sum(Path(image.path).stat().st_size for image in workspace.images)
    num = len(workspace.images)
    return Built(
        format="files", num_images=num, num_files=num, num_bytes=num_bytes, build_s=None, build_cpu_s=None
    )


def by_encoding(workspace: Workspace, records: Built) -> list[Built]:
    """Return both encodings of the records. One build writes both; its time is reported for `pcr`."""
    formats = []
    for encoding in ENCODINGS:
        files = list_files(workspace.format_folder(OURS) / encoding)
        num_bytes = sum(file.stat().st_size for file in files)
        format_ = replace(records, format=encoding, num_files=len(files), num_bytes=num_bytes)
        formats.append(format_ if encoding == "pcr" else replace(format_, build_s=None, build_cpu_s=None))
    return formats


def list_files(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted, with links resolved to their targets."""
    return sorted(path.resolve() for path in folder.rglob("*") if path.is_file())


def _stored(dataset: Dataset, label: str, records: Path) -> list[SourceImage]:
    rejected = {sample_id for sample_id, _ in read_rejected(records)}
    return [
        SourceImage(str(sample.path.resolve()), sample.labels[label])
        for sample in dataset.train
        if sample.id not in rejected
    ]


LOWEST_QUALITY, HIGHEST_QUALITY = 1, 95
_SAMPLE_IMAGES = 32


def build_copies(workspace: Workspace, groups: Sequence[int], num_workers: int) -> list[Built]:
    """Build a copy of all images about as large as each scan group; return an entry for each, and a total.

    The total, `files_and_copies`, counts the original files and every copy: together they offer the same
    choice as one set of progressive records.
    """
    index = RecordSet(LocalStorage(workspace.format_folder(OURS)), "pcr").index
    copies = []
    for group in groups:
        quality = quality_for(workspace.images, index.mean_prefix_bytes(group))
        build = partial(_build_copy, workspace.images, quality, num_workers)
        copies.append(build_once(workspace, f"copy_q{quality}_group_{group}", build))
    return [*copies, _together(original_files(workspace), copies)] if copies else []


def _together(files: Built, copies: Sequence[Built]) -> Built:
    seconds = [(copy.build_s or 0.0, copy.build_cpu_s or 0.0) for copy in copies]
    return replace(
        files,
        format="files_and_copies",
        num_files=files.num_files + sum(copy.num_files for copy in copies),
        num_bytes=files.num_bytes + sum(copy.num_bytes for copy in copies),
        build_s=sum(wall_s for wall_s, _ in seconds),
        build_cpu_s=sum(cpu_s for _, cpu_s in seconds),
    )


def quality_for(images: Sequence[SourceImage], mean_bytes: float) -> int:
    """Return the highest JPEG quality (1..95) whose copies have at most `mean_bytes` on average; else 1.

    The search uses 32 images, spread evenly.
    """
    places = spread_evenly(len(images), min(_SAMPLE_IMAGES, len(images)))
    sample = [Path(images[place].path).read_bytes() for place in places]
    low, high = LOWEST_QUALITY, HIGHEST_QUALITY
    while low < high:
        middle = (low + high + 1) // 2
        size = sum(len(reencode(jpeg, middle)) for jpeg in sample) / len(sample)
        low, high = (middle, high) if size <= mean_bytes else (low, middle - 1)
    return low


def _build_copy(images: Sequence[SourceImage], quality: int, num_workers: int, folder: Path) -> None:
    """Re-encode every image at a quality with Pillow, whose other settings keep their defaults."""

    def write(numbered: tuple[int, SourceImage]) -> None:
        number, image = numbered
        (folder / f"{number:07d}.jpg").write_bytes(reencode(Path(image.path).read_bytes(), quality))

    with ThreadPoolExecutor(max(1, num_workers)) as pool:
        list(pool.map(write, enumerate(images)))


def reencode(jpeg: bytes, quality: int) -> bytes:
    """Return the image as a baseline JPEG of the given quality, without its metadata."""
    out = io.BytesIO()
    with Image.open(io.BytesIO(jpeg)) as image:
        image.save(out, "JPEG", quality=quality)
    return out.getvalue()
