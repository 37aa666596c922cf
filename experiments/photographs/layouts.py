"""Lay out files of public repositories in the official layouts of three datasets.

Exact duplicates are removed: of files with equal bytes, the first by name stays. If their labels differ, none
stays, since the correct label is unknown.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pcr_exp.datasets.cars import TEST_ANNOS
from pcr_exp.datasets.ham10000 import DIAGNOSES, METADATA, PARTS
from pcr_exp.datasets.sample import split_of
from pcr_exp.errors import DatasetError
from pcr_exp.images.jpeg import Frame, read_frame
from pcr_exp.places import CHECKOUT


@dataclass(frozen=True, slots=True)
class Repository:
    """A public repository and its commit."""

    name: str
    """owner/name."""
    commit: str
    """40 hex digits."""


@dataclass(frozen=True, slots=True)
class GitFiles:
    """The files of a commit in a local clone of its repository."""

    folder: Path
    """The git directory, or a checkout."""
    repository: Repository

    def __post_init__(self) -> None:
        """Raise DatasetError if the commit is missing."""
        wanted = self.repository
        done = self._git("cat-file", "-e", f"{wanted.commit}^{{commit}}", check=False)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise DatasetError(
                f"{self.folder} has no commit {wanted.commit} ({said}): wanted a clone of {wanted.name} on "
                f"GitHub that holds it: git clone --bare https://github.com/{wanted.name}"
            )

    def ids(self, below: str = "") -> dict[str, str]:
        """Return git's content hash by path, for every file below a folder. Equal hashes are equal files."""
        listed = self._git("ls-tree", "-r", "-z", self.repository.commit, "--", *([below] if below else []))
        entries = [entry.partition("\t") for entry in listed.stdout.decode().split("\0") if entry]
        return {path: fields.split()[2] for fields, _, path in entries if fields.split()[1] == "blob"}

    def read(self, path: str) -> bytes:
        """Return the content of one file. Raises DatasetError if it is missing."""
        ((_, content),) = self.contents({path: f"{self.repository.commit}:{path}"})
        return content

    def contents(self, ids: dict[str, str]) -> Iterator[tuple[str, bytes]]:
        """Yield (path, content) for each of `ids`, in order. Raises DatasetError if the clone lacks one."""
        command = ["git", "-C", str(self.folder), "cat-file", "--batch"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            for path, id_ in ids.items():
                process.stdin.write(f"{id_}\n".encode())
                process.stdin.flush()
                answer = process.stdout.readline().decode().split()
                if len(answer) != 3:
                    raise DatasetError(
                        f"{self.folder} lacks {path} of {self.repository.name} at {self.repository.commit} "
                        f"({' '.join(answer)}): is it a partial copy? Clone it in full."
                    )
                content = process.stdout.read(int(answer[2]))
                process.stdout.read(1)
                yield path, content
            process.stdin.close()

    def _git(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                ["git", "-C", str(self.folder), *arguments], capture_output=True, check=check
            )
        except FileNotFoundError as error:
            raise DatasetError("git is not installed, and photographs are read from its objects.") from error
        except subprocess.CalledProcessError as error:
            raise DatasetError(
                f"{self.folder}: git {arguments[0]}: {error.stderr.decode(errors='replace').strip()}"
            ) from error


ORIGIN_FILE = "origin.json"
"""File next to the images: their source, and what was left out."""
_CARS_TEST_SHARE, _CARS_SPLIT_SEED = 0.2, 42
_LAST_OF_PART_1 = 29305
"""The first of the official archives ends with ISIC_0029305."""


@dataclass(slots=True)
class Origin:
    """Source of a set, and what was left out."""

    repository: str
    commit: str
    labels: str
    """Repository and commit of the labels."""
    num_files: int = 0
    """Photographs in the repository."""
    unlabelled: int = 0
    """Number of these without a label."""
    duplicates: list[list[str]] = field(default_factory=list)
    """Files with equal bytes and equal labels; only the first of each list stays."""
    contradictions: list[list[str]] = field(default_factory=list)
    """Files with equal bytes but different labels; none of them stays."""


@dataclass(frozen=True, slots=True)
class Source:
    """A dataset whose photographs are in a public repository."""

    photographs: Repository
    labels: Repository | None
    """The repository of the labels, if it is another one."""
    lay: Callable[[GitFiles, GitFiles | None, Path, Origin], None]


def lay(name: str, photographs: Path, out: Path, labels: Path | None = None) -> Origin:
    """Lay out the photographs of a repository as dataset `name` is published, in the new folder `out`.

    Args:
        name: A key of `SOURCES`.
        photographs: Clone of the repository with the images, bare or not.
        out: Folder to create outside the checkout; it appears with all its files or not at all.
        labels: Clone of the repository with the labels, if that is another one.

    Raises:
        DatasetError: a clone lacks the commit or a file, labels are missing, or `out` cannot be made.
    """
    source = SOURCES[name]
    _check_out(out)
    if (labels is None) != (source.labels is None):
        wanted = f"a clone of {source.labels.name}" if source.labels else "none"
        raise DatasetError(f"--labels={labels}: {name} wants {wanted}.")
    files = GitFiles(photographs, source.photographs)
    label_files = GitFiles(labels, source.labels) if labels and source.labels else None
    named = source.labels or source.photographs
    origin = Origin(source.photographs.name, source.photographs.commit, f"{named.name} @{named.commit}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as unfinished:
        whole = Path(unfinished) / "whole"
        whole.mkdir()
        source.lay(files, label_files, whole, origin)
        (whole / ORIGIN_FILE).write_text(json.dumps(asdict(origin), indent=1) + "\n")
        shutil.move(whole, out)
    return origin


def read_origin(root: Path) -> Origin | None:
    """Read what `lay` wrote next to the images; None for a folder that it did not create."""
    path = root / ORIGIN_FILE
    return Origin(**json.loads(path.read_text())) if path.exists() else None


def _check_out(out: Path) -> None:
    if out.exists():
        raise DatasetError(f"{out} is there already: delete it, or give another folder.")
    if CHECKOUT is not None and out.resolve().is_relative_to(CHECKOUT):
        raise DatasetError(f"{out} lies in the checkout: photographs are never committed. Give one outside.")


def without_duplicates(ids: Mapping[str, str], label_of: Mapping[str, str], origin: Origin) -> dict[str, str]:
    """Return the paths that stay, with their content hashes. Note the others in `origin`."""
    paths_of: dict[str, list[str]] = {}
    for path in sorted(label_of):
        paths_of.setdefault(ids[path], []).append(path)
    kept = {}
    for id_, paths in paths_of.items():
        if len({label_of[path] for path in paths}) > 1:
            origin.contradictions.append(paths)
            continue
        if len(paths) > 1:
            origin.duplicates.append(paths)
        kept[paths[0]] = id_
    return dict(sorted(kept.items()))


def _write(files: GitFiles, ids: Mapping[str, str], place: Callable[[str], Path]) -> dict[str, Frame]:
    """Write each file to its place. Return their frame headers."""
    frames = {}
    for path, content in files.contents(dict(ids)):
        target = place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        frames[path] = read_frame(content)
    return frames


def _lay_imagenet(files: GitFiles, _: GitFiles | None, out: Path, origin: Origin) -> None:
    ids = {path: id_ for path, id_ in files.ids().items() if path.startswith(("train/n", "val/n"))}
    origin.num_files = len(ids)
    # The label includes the split, so that equal files in train and val contradict each other too.
    label_of = {path: path.rpartition("/")[0] for path in ids}
    _write(files, without_duplicates(ids, label_of, origin), lambda path: out / path)


def _lay_ham10000(files: GitFiles, labels: GitFiles | None, out: Path, origin: Origin) -> None:
    assert labels is not None
    rows = list(csv.DictReader(io.StringIO(labels.read("data/HAM10000_metadata.csv").decode())))
    by_image = {row["image_id"]: row for row in rows}
    ids = {path: id_ for path, id_ in files.ids("images/").items() if path.endswith(".jpg")}
    label_of = {path: by_image[Path(path).stem]["dx"] for path in ids if Path(path).stem in by_image}
    origin.num_files, origin.unlabelled = len(ids), len(ids) - len(label_of)
    unknown = sorted(set(label_of.values()) - set(DIAGNOSES))
    if unknown:
        raise DatasetError(f"{labels.folder}: the metadata has diagnoses {unknown}; wanted {DIAGNOSES}.")
    kept = without_duplicates(ids, label_of, origin)
    for part in PARTS:
        (out / part).mkdir()
    _write(files, kept, lambda path: out / PARTS[_number(path) > _LAST_OF_PART_1] / Path(path).name)
    there = {Path(path).stem for path in kept}
    with (out / METADATA[0]).open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if row["image_id"] in there)


def _number(path: str) -> int:
    return int(Path(path).stem.removeprefix("ISIC_"))


def _lay_cars(files: GitFiles, _: GitFiles | None, out: Path, origin: Origin) -> None:
    """Write the devkit's layout. The test split is ours, by a hash of file names, not the devkit's."""
    classes = [int(line) for line in files.read("train_perfect_preds.txt").split()]
    ids = files.ids("cars_train/")
    origin.num_files = len(ids)
    if len(classes) != len(ids):
        raise DatasetError(f"train_perfect_preds.txt has {len(classes)} lines for {len(ids)} photographs.")
    label_of = {path: str(classes[int(Path(path).stem) - 1]) for path in ids}
    kept = without_duplicates(ids, label_of, origin)

    def folder(path: str) -> str:
        name = Path(path).name
        split = split_of(name, val_fraction=_CARS_TEST_SHARE, tune_fraction=0.0, seed=_CARS_SPLIT_SEED)
        return {"val": "cars_test", "train": "cars_train"}[split]

    written = _write(files, kept, lambda path: out / folder(path) / Path(path).name)
    devkit = out / "devkit"
    devkit.mkdir()
    (devkit / "cars_meta.mat").write_bytes(files.read("cars_meta.mat"))
    for name, annos in (("cars_train", devkit / "cars_train_annos.mat"), ("cars_test", out / TEST_ANNOS)):
        _write_annotations(annos, {p: written[p] for p in kept if folder(p) == name}, label_of)


def _write_annotations(path: Path, images: Mapping[str, Frame], label_of: Mapping[str, str]) -> None:
    """Write a devkit table. Boxes are whole images; MATLAB counts pixels and classes from 1."""
    import numpy as np
    import scipy.io

    names = ["bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname"]
    rows = np.empty((1, len(images)), dtype=[(name, object) for name in names])
    for place, (image, frame) in enumerate(images.items()):
        box = (1, 1, frame.width_px, frame.height_px)
        rows[0, place] = (*box, int(label_of[image]), Path(image).name)
    scipy.io.savemat(path, {"annotations": rows})


SOURCES = {
    "cars": Source(
        Repository("fmejbah/car_dataset1", "2ac6920297f51277ac4e24afd231c46d35077831"), None, _lay_cars
    ),
    "imagenet": Source(
        Repository("thunderInfy/imagenette", "b850f030ff0701c36a4adc8b928ea9483a46915b"), None, _lay_imagenet
    ),
    "ham10000": Source(
        Repository("congtran19/XLA", "a8ba08aca1f0d9ee7524079182654870bc6420cc"),
        Repository("mmalek06/bounding-box-detection-ham1000", "fcf5ea80af329997639e3bdb65bd3bf80a0571d7"),
        _lay_ham10000,
    ),
}
