"""The embedded dataset: images cut from photographs that scikit-image ships, made on first use.

    <root>/photos-<key>/{train,val}/<photo>/<focus>/0001.jpg    and stamp.json, the settings

There are two labels. The coarse one, `photo`, is the photograph that an image is cut from; it survives strong
compression. The fine one, `focus`, is whether the image is in focus or slightly blurred; it needs the high
frequencies. Train and val are cut from separate parts of each photograph. Tune (`dataset.tune_fraction`) is
taken out of the first part, so it resembles train more than val does. The same settings give the same bytes.

The photographs are files inside scikit-image's wheel, so nothing is downloaded. Those used are large enough,
sharp to the pixel nearly everywhere, and alike on their left and right. Left out are moon, retina and cell
(blurring changes little), chelsea (half out of focus), coins and page (small), camera (a man on the left, a
lawn on the right), gravel (much like grass) and the motorcycle's second image (same scene).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from pcr_exp.config.check import Bound, at_least
from pcr_exp.config.components import register
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.datasets.sample import Dataset, Sample, make_dataset
from pcr_exp.datasets.seen import SeenFiles
from pcr_exp.errors import DatasetError
from pcr_exp.system.keys import key_of

if TYPE_CHECKING:
    import numpy as np

VERSION = 2
"""Version of the generator. Increment it with every change that gives other images."""
_THIS_VERSION = Bound(lambda version: version == VERSION, f"{VERSION}, the version of this release")
SOURCE_FILES = {
    "astronaut": "astronaut.png",
    "brick": "brick.png",
    "coffee": "coffee.png",
    "grass": "grass.png",
    "hubble": "hubble_deep_field.jpg",
    "ihc": "ihc.png",
    "motorcycle": "motorcycle_left.png",
    "rocket": "rocket.jpg",
}
"""Class name -> file in skimage/data."""

TRAIN_SHARE = 0.6
"""Share of a photograph's width, from the left, for train; the rest is for val."""
GAP_PX = 16
"""Columns between the two that belong to neither, since neighbouring pixels are alike."""
CLASSES = {"photo": list(SOURCE_FILES), "focus": ["blurred", "in_focus"]}
REGIONS = ("train", "val")
"""Parts of each photograph that images are cut from; `tune` is taken out of the first."""
NUM_THREADS = 2
STAMP = "stamp.json"


@dataclass(kw_only=True, slots=True)
class PhotosConfig(DatasetConfig):
    """The embedded dataset; labels photo and focus."""

    num_train: Annotated[int, at_least(1)] = 1536
    """Number of training images to make."""
    num_val: Annotated[int, at_least(1)] = 512
    """Number of validation images to make."""
    size_px: Annotated[int, at_least(64)] = 256
    """Side in pixels of each image."""
    quality: Annotated[int, Bound(lambda quality: 1 <= quality <= 100, "a JPEG quality, 1..100")] = 90
    """JPEG quality of the files, 1 to 100."""
    seed: int = 0
    """Seed of the crops from the photographs."""
    version: Annotated[int, _THIS_VERSION] = VERSION
    """Version of the generator, as a setting so that it enters the names of records and runs. Only this value
    works."""


@dataclass(frozen=True, slots=True)
class PlannedImage:
    """One image to make. Its file and all its random draws follow from these fields."""

    split: str
    index: int
    """Index in its split."""
    photo: int
    focus: int
    number: int
    """Number within its folder, from 1."""

    @property
    def file(self) -> str:
        """Path relative to the dataset's own folder."""
        folder = f"{self.split}/{CLASSES['photo'][self.photo]}/{CLASSES['focus'][self.focus]}"
        return f"{folder}/{self.number:04d}.jpg"


@register("dataset", "photos", PhotosConfig)
def read(config: PhotosConfig) -> Dataset:
    """Return the images, after making them if `root` has none with these settings.

    Raises:
        DatasetError: `root` is null or cannot be written, or the existing images are incomplete.
    """
    if config.root is None:
        raise DatasetError("dataset.root is null: photos wants a folder to make its images in.")
    root = Path(config.root).expanduser()
    settings = _settings(config)
    folder = root / f"photos-{key_of(settings)}"
    if not folder.exists():
        _make(folder, config, settings)
    _check(folder, config, settings)
    # Ids are relative to the dataset's own folder, so more or larger images change neither splits nor order.
    samples: dict[str, list[Sample]] = {region: [] for region in REGIONS}
    for image in plan(config):
        labels = {"photo": image.photo, "focus": image.focus}
        samples[image.split].append(Sample(image.file, folder / image.file, labels))
    seen = SeenFiles()
    for leaf in sorted({sample.path.parent for chosen in samples.values() for sample in chosen}):
        seen.images(leaf)
    seen.table(folder / STAMP)
    if config.folds:
        seen.remarks.append(
            "photos: folds mix images that are cut from the same parts of the photographs, so their results "
            "are too good. Use them to try out folds, not to report results."
        )
    classes = {label: list(names) for label, names in CLASSES.items()}
    return make_dataset(config, samples["train"], classes, seen, val=samples["val"])


def plan(config: PhotosConfig) -> Iterator[PlannedImage]:
    """Yield all images. In each split, the counts of (photo, focus) combinations differ by one at most."""
    num_focus = len(CLASSES["focus"])
    num_cells = len(CLASSES["photo"]) * num_focus
    for split, num in zip(REGIONS, (config.num_train, config.num_val), strict=True):
        for index in range(num):
            cell = index % num_cells
            yield PlannedImage(split, index, cell // num_focus, cell % num_focus, 1 + index // num_cells)


def _settings(config: PhotosConfig) -> dict[str, Any]:
    return {
        "version": config.version,
        "num_train": config.num_train,
        "num_val": config.num_val,
        "size_px": config.size_px,
        "quality": config.quality,
        "seed": config.seed,
        "sources": sources_digest(),
    }


def _make(folder: Path, config: PhotosConfig, settings: dict[str, Any]) -> None:
    """Make all images and the stamp, in a temporary folder that is renamed once it is complete."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as unfinished:
            whole = Path(unfinished) / "whole"
            _draw_all(whole, config)
            (whole / STAMP).write_text(json.dumps(settings, indent=2) + "\n")
            _rename(whole, folder)
    except OSError as error:
        raise DatasetError(f"photos: the images cannot be made in {folder.parent}: {error}.") from error


def _rename(whole: Path, folder: Path) -> None:
    try:
        whole.rename(folder)
    except OSError:
        if not (folder / STAMP).is_file():  # else another process made the same images first
            raise


def _draw_all(folder: Path, config: PhotosConfig) -> None:
    for split in REGIONS:
        for photo in CLASSES["photo"]:
            for focus in CLASSES["focus"]:
                (folder / split / photo / focus).mkdir(parents=True)
    photos = [load_photo(name) for name in CLASSES["photo"]]

    def draw(image: PlannedImage) -> None:
        region = split_region(photos[image.photo], image.split)
        jpeg = draw_jpeg(image, region, config)
        (folder / image.file).write_bytes(jpeg)

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        list(pool.map(draw, plan(config)))


def draw_jpeg(image: PlannedImage, region: np.ndarray, config: PhotosConfig) -> bytes:
    """Draw one image's file. Its random draws are its own, independent of threads and other images."""
    import numpy as np

    from pcr_exp.datasets.photo_crops import defocus, draw_image, encode_jpeg

    rng = np.random.default_rng([config.seed, REGIONS.index(image.split), image.index])
    pixels = draw_image(rng, region, config.size_px)
    if CLASSES["focus"][image.focus] == "blurred":
        pixels = defocus(rng, pixels)
    return encode_jpeg(pixels, config.quality)


def load_photo(name: str) -> np.ndarray:
    """Load a photograph: uint8 [H, W, 3] RGB, or [H, W] if it is grey.

    Raises:
        DatasetError: this scikit-image does not ship it.
    """
    import numpy as np
    from PIL import Image

    return np.asarray(Image.open(_open(name)))


def sources_digest() -> str:
    """Return the SHA-256 over all source files, as another scikit-image may ship other bytes."""
    digest = hashlib.sha256()
    for name in SOURCE_FILES:
        digest.update(_open(name).read())
    return digest.hexdigest()


def split_region(photo: np.ndarray, split: str) -> np.ndarray:
    """Return the columns of `photo` that `split` (train or val) may use, which exclude the other split's."""
    boundary = round(TRAIN_SHARE * photo.shape[1])
    return photo[:, : boundary - GAP_PX // 2] if split == "train" else photo[:, boundary + GAP_PX // 2 :]


def _open(name: str) -> IO[bytes]:
    file = files("skimage.data") / SOURCE_FILES[name]
    if not file.is_file():
        raise DatasetError(
            f"photos: scikit-image ships no {SOURCE_FILES[name]} here ({file}). The dataset is made from the "
            "photographs in its wheel: install scikit-image 0.24 or later as a wheel."
        )
    return file.open("rb")


def _check(folder: Path, config: PhotosConfig, settings: dict[str, Any]) -> None:
    remedy = f"Remove {folder}; the images are made again."
    try:
        stamp = json.loads((folder / STAMP).read_text())
    except (OSError, ValueError) as error:
        raise DatasetError(f"photos: {folder / STAMP} cannot be read ({error}). {remedy}") from error
    if stamp != settings:
        raise DatasetError(f"photos: {folder / STAMP} says {stamp}; wanted {settings}. {remedy}")
    missing = [image.file for image in plan(config) if not (folder / image.file).is_file()]
    if missing:
        raise DatasetError(f"photos: {folder} lacks {missing[0]} ({len(missing)} such files). {remedy}")
