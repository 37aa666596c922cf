"""What it takes to write images as records, and in the formats of others: seconds, bytes and files.

`python -m experiments.loaders.speed.build_time --peers tfrecord` builds each format of native ImageNet images
anew in every repeat, in turns, and keeps a table as build_time.csv in outputs/records_speed. Records are
written in both encodings, by two threads; peers by what they bring for that. Files lie in the page cache.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.loaders.formats import build_format, open_workspace
from experiments.loaders.process import LoaderProcess
from experiments.loaders.speed.study import Row, Study
from pcr_exp.config.commands import PrepareConfig
from pcr_exp.config.compose import compose
from pcr_exp.config.dataset import DatasetConfig


def build_times(dataset: DatasetConfig, peers: Sequence[str], *, repeats: int) -> Iterator[Row]:
    """A row of each format in each repeat: those of `formats.Built`.

    Raises:
        LoaderError: a peer is not installed, or cannot build its format.
    """
    for repeat in range(repeats):
        with TemporaryDirectory() as work:
            workspace, records = open_workspace(
                dataset,
                Path(work),
                on_error="fail",
                num_workers=2,
                progress=lambda done, total: None,  # noqa: ARG005
            )
            built = [records]
            for name in peers:
                with LoaderProcess(name) as process:
                    built.append(build_format(workspace, name, process))
            for one in built:
                facts = asdict(one)
                seconds = {name: facts.pop(name) for name in ("build_s", "build_cpu_s")}
                yield {**facts, "repeat": repeat, **seconds}


def link_images(images: Sequence[Path], folder: Path) -> Path:
    """Links of two classes in `folder`, a dataset: all to train on, the first two to validate on, too."""
    for split, some in (("train", images), ("val", images[:2])):
        for number, image in enumerate(some):
            link = folder / split / f"class_{number % 2}" / f"{number:06d}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(image.resolve())
    return folder


def folder_dataset(root: Path) -> DatasetConfig:
    """`dataset=folder` there, with all of `train/` to train on."""
    return compose(
        "prepare", PrepareConfig, "dataset=folder", f"dataset.root={root}", "dataset.tune_fraction=0"
    ).dataset


def rows(given: Namespace) -> Iterator[Row]:
    """Of all images of the folder."""
    with TemporaryDirectory() as temporary:
        linked = link_images(sorted(given.images.rglob("*.JPEG")), Path(temporary))
        yield from build_times(folder_dataset(linked), given.peers, repeats=given.repeats)


main = Study(__doc__, "outputs/records_speed/build_time.csv", rows)
main.add("--peers", nargs="*", default=["tfrecord"])

if __name__ == "__main__":
    main()
