"""Speed of opening an index, splitting record prefixes, encoding and building formats, on native ImageNet.

`python -m experiments.loaders.speed.records {index,prefix,encode,build_time} --out results/records_speed`
prints a table and saves it as <name>.csv.
"""

from __future__ import annotations

import functools
import shutil
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.loaders.formats import build_format, open_workspace
from experiments.loaders.process import LoaderProcess
from experiments.results.study import Row, Study, native_records, native_samples, save_rows, seconds
from pcr_exp.config.commands import PrepareConfig
from pcr_exp.config.compose import compose
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.images.transcode import Jpegtran, find_transcoder, to_progressive
from pcr_exp.records.index import INDEX_FILE, RecordIndex, dump_index
from pcr_exp.records.index_table import read_index
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

NUM_IMAGES = 400
RECORDS_OF = {64: 1280, 1024: 2048}
"""Images per record, for records whose prefixes are split, and the images of all these records."""
SPLIT_BYTES = 2e8
"""Bytes of prefixes per measurement."""


def imagenet_index(index: RecordIndex) -> RecordIndex:
    """Return an index of ImageNet's size: 1,251 records, and the names of 1,000 classes."""
    records = [replace(index.records[i % len(index.records)], file=f"{i:06d}.pcr") for i in range(1251)]
    return replace(index, classes={"wnid": [f"n{i:08d}" for i in range(1000)]}, records=records)


def measure_index(given: Namespace) -> Iterator[Row]:
    """Measure the milliseconds to open the index of a dataset of ImageNet's size."""
    folder = native_records(NUM_IMAGES, 64, images=given.images)
    with TemporaryDirectory() as place:
        data = dump_index(imagenet_index(RecordSet(LocalStorage(folder), "pcr").index))
        Path(place, INDEX_FILE).write_bytes(data)
        for repeat in range(given.repeats):
            took_s = seconds(lambda: read_index(LocalStorage(place), ""))
            yield {"records": 1251, "index_kb": len(data) / 1e3, "repeat": repeat, "open_ms": 1e3 * took_s}


class _InMemory(LocalStorage):
    """Storage that reads each range of a file only once."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read = functools.cache(super().read)  # type: ignore[method-assign]


def measure_prefix(given: Namespace) -> Iterator[Row]:
    """Measure GB/s on one core from a record prefix to a list of JPEG files as bytes, checksums verified.

    Once with the prefix in memory, and once with its file in the page cache.
    """
    for num_images, count in RECORDS_OF.items():
        folder = native_records(count, num_images, images=given.images)
        in_memory, in_file = (RecordSet(storage(folder), "pcr") for storage in (_InMemory, LocalStorage))
        for group in (1, 2, 5, 10):
            num_bytes = in_file.index.prefix_bytes(0, group)
            for repeat in range(given.repeats):
                split_s, read_s = _split_seconds(in_memory, group), _split_seconds(in_file, group)
                yield {
                    "images": num_images,
                    "group": group,
                    "prefix_mb": num_bytes / 1e6,
                    "repeat": repeat,
                    "split_gb_per_s": num_bytes / split_s / 1e9,
                    "read_and_split_gb_per_s": num_bytes / read_s / 1e9,
                }


def _split_seconds(records: RecordSet, group: int) -> float:
    passes = max(1, round(SPLIT_BYTES / records.index.prefix_bytes(0, group)))

    def split() -> None:
        for _ in range(passes):
            prefix = records.read_prefix(0, group)
            [prefix.encoded(i) for i in range(len(prefix))]

    split()
    return seconds(split) / passes


def measure_encode(given: Namespace) -> Iterator[Row]:
    """Measure images/s from files to records with one and two threads, of transcoding, and of jpegtran."""
    program = shutil.which("jpegtran")
    if program is None:
        raise SystemExit("jpegtran is not installed: apt-get install libjpeg-turbo-progs")
    originals = [sample.path.read_bytes() for sample in native_samples(200, given.images)]
    by_program = Jpegtran(program)
    for repeat in range(given.repeats):
        rates = {
            "transcode_images_per_s": len(originals)
            / seconds(lambda: [to_progressive(data) for data in originals]),
            "jpegtran_images_per_s": len(originals)
            / seconds(lambda: [by_program(data) for data in originals]),
            "encode_images_per_s": NUM_IMAGES / _encode_seconds(given.images, 1),
            "two_cores_images_per_s": NUM_IMAGES / _encode_seconds(given.images, 2),
        }
        yield {
            "library": Path(find_transcoder().path).name,
            "images": NUM_IMAGES,
            "repeat": repeat,
            **rates,
            "transcode_over_jpegtran": rates["transcode_images_per_s"] / rates["jpegtran_images_per_s"],
            "encode_over_jpegtran": rates["encode_images_per_s"] / rates["jpegtran_images_per_s"],
            "two_cores_over_one": rates["two_cores_images_per_s"] / rates["encode_images_per_s"],
        }


def _encode_seconds(images: Path, num_workers: int) -> float:
    with TemporaryDirectory() as place:
        return seconds(
            lambda: native_records(NUM_IMAGES, 64, Path(place), images=images, num_workers=num_workers)
        )


def build_times(dataset: DatasetConfig, peers: Sequence[str], *, repeats: int) -> Iterator[Row]:
    """Yield a row of each format in each repeat, with the columns of `formats.Built`.

    Raises:
        LoaderError: a peer is not installed, or cannot build its format.
    """
    for repeat in range(repeats):
        with TemporaryDirectory() as work:
            workspace, records = open_workspace(dataset, Path(work), on_error="fail", num_workers=2)
            built = [records]
            for name in peers:
                with LoaderProcess(name) as process:
                    built.append(build_format(workspace, name, process))
            for one in built:
                facts = asdict(one)
                seconds = {name: facts.pop(name) for name in ("build_s", "build_cpu_s")}
                yield {**facts, "repeat": repeat, **seconds}


def link_images(images: Sequence[Path], folder: Path) -> Path:
    """Link images into `folder` as a dataset of two classes: all for training, two also for validation."""
    for split, some in (("train", images), ("val", images[:2])):
        for number, image in enumerate(some):
            link = folder / split / f"class_{number % 2}" / f"{number:06d}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(image.resolve())
    return folder


def folder_dataset(root: Path) -> DatasetConfig:
    """Return `dataset=folder` at `root`, with all of `train/` for training."""
    return compose(
        "prepare", PrepareConfig, "dataset=folder", f"dataset.root={root}", "dataset.tune_fraction=0"
    ).dataset


def measure_build_time(given: Namespace) -> Iterator[Row]:
    """Measure seconds, bytes and files of writing all images as records and in the formats of `--peers`.

    Every repeat builds each format anew: records in both encodings with two threads, others with the peer's
    own writer. Source files are in the page cache.
    """
    with TemporaryDirectory() as temporary:
        linked = link_images(sorted(given.images.rglob("*.JPEG")), Path(temporary))
        yield from build_times(folder_dataset(linked), given.peers, repeats=given.repeats)


MEASURES = {
    "index": measure_index,
    "prefix": measure_prefix,
    "encode": measure_encode,
    "build_time": measure_build_time,
}


def tables(given: Namespace) -> None:
    """Measure and save the requested tables."""
    for what in given.what:
        save_rows(list(MEASURES[what](given)), given.out / f"{what}.csv")


main = Study(__doc__, "outputs/records_speed", tables)
main.add("what", nargs="+", choices=MEASURES)
main.add("--peers", nargs="*", default=["tfrecord"], help="of build_time")

if __name__ == "__main__":
    main()
