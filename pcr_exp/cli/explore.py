"""Show what the network would see: one self-contained page, which opens from disk and works offline.

    python -m experiments.explore data/records/pets-1a2b3c4d/train -o pets.html
    python -m experiments.explore data/records/pets-1a2b3c4d --tolerance outputs/tolerance/pets-label-...

The page shows images by class at every scan group, with the loader's crop, bytes and MS-SSIM. It also shows
what a task loses there, if `tolerance` has measured it, and the throughput that a storage allows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcr_exp.config.check import require
from pcr_exp.config.loader import ANTIALIAS, DECODE_MODES
from pcr_exp.errors import PcrExpError, RecordError, RunError, printable
from pcr_exp.places import as_typed
from pcr_exp.system.words import counted

if TYPE_CHECKING:
    from pcr_exp.analysis.explore import Shown
    from pcr_exp.analysis.tolerance import Measured
    from pcr_exp.config.crops import CropSettings
    from pcr_exp.config.measuring import ToleranceConfig
    from pcr_exp.datasets.sample import Dataset, Sample
    from pcr_exp.measuring.explore import StoredImages
    from pcr_exp.records.inspect import Found

_CROP_PX = 224
_PAGE_WITHOUT_IMAGES = 150_000
_MARK_WITHIN_BYTES = 400
_NUM_THREADS = 2


def explore(options: argparse.Namespace) -> Path:
    """Make a page of records.

    Raises:
        RecordError: there are no progressive records, they are empty, or no image can be shown.
        ConfigError: a setting is invalid, or the task was measured on other records.
        RunError: the folder of `--tolerance` holds no measurement, or the page's file cannot be replaced.
        StorageError: the records cannot be reached, or the page cannot be written.
    """
    from pcr_exp.records.inspect import find_records

    require(options.images >= 1, "--images", options.images, "at least 1")
    require(options.crop_px is None or options.crop_px >= 32, "--crop-px", options.crop_px, "at least 32")
    require(options.max_mb > 0.2, "--max-mb", options.max_mb, "more than 0.2")
    found = _progressive(find_records(options.root))
    index = found[0].records.index
    path = Path(options.output or f"{index.dataset}-{index.split}.html")
    _require_ours(path, options.force)
    return _write(path, _shown_of_records(found, options))


def _progressive(found: Sequence[Found]) -> list[Found]:
    """Return the progressive records among those found."""
    progressive = [one for one in found if one.records.index.encoding != "baseline"]
    if not progressive:
        index = found[0].records.index
        raise RecordError(
            f"{found[0].records.path_of('index.json')}: the records of {index.dataset}/{index.split} are "
            f"{index.encoding} records, which have only one fidelity. Give the folder of progressive records."
        )
    return progressive


def _shown_of_records(found: Sequence[Found], options: argparse.Namespace) -> Shown:
    from pcr_exp.analysis.explore import EpochFacts, storage_of, wanted_mistakes
    from pcr_exp.config.crops import CropSettings
    from pcr_exp.config.dataset import AugmentConfig
    from pcr_exp.measuring.explore import choose_by_class, images_in_records

    index = found[0].records.index
    task = _task(options.tolerance, index.num_groups)
    label = options.label or (task.facts.label if task else next(iter(index.classes)))
    images = images_in_records(found, label, wanted_mistakes(task) if task else [])
    groups = range(1, index.num_groups + 1)
    crop_px = options.crop_px or (task.facts.image_size if task else _CROP_PX)
    return _shown(
        images,
        _NUM_THREADS,
        title=f"{index.dataset}/{index.split}",
        groups=groups,
        gallery=choose_by_class(images, options.images, options.classes),
        crops=CropSettings(
            train_px=crop_px,
            eval_px=crop_px,
            augment=AugmentConfig(eval_crop_fraction=options.crop_fraction),
            antialias=options.antialias,
            decode=options.decode or (task.facts.decode if task else "scaled"),
        ),
        epoch=EpochFacts(
            num_images=index.num_samples,
            images_per_record=index.num_samples / len(index.records),
            image_bytes=[index.mean_prefix_bytes(group) for group in groups],
        ),
        task=task,
        max_bytes=int(options.max_mb * 1e6),
        storage=storage_of(options.storage) if options.storage else None,
    )


def _shown(
    images: StoredImages, num_threads: int, *, gallery: Sequence[str], task: Measured | None, **more: Any
) -> Shown:
    """Explore the images of the grid and of the task; `more` holds the page's other contents."""
    from pcr_exp.analysis.explore import MAX_PAGE_BYTES, Shown, in_turn, wanted_mistakes
    from pcr_exp.measuring.explore import explore_images
    from pcr_exp.system.progress import counting_bar

    wanted = wanted_mistakes(task) if task else []
    max_bytes = more.setdefault("max_bytes", MAX_PAGE_BYTES)
    with counting_bar("images of the page") as tell:
        explored = explore_images(
            images,
            in_turn(gallery, [name for name in wanted if name in images.labels]),
            more["groups"],
            more["crops"],
            max_bytes=max_bytes - _PAGE_WITHOUT_IMAGES,
            num_threads=num_threads,
            progress=tell,
        )
    more |= {"classes": images.classes, "unread": images.unread}
    return Shown(explored=explored, gallery=gallery, task=task, **more)


def _task(folder: Path | None, num_groups: int) -> Measured | None:
    """Load the measurement of `tolerance` and check that it fits records with `num_groups` groups."""
    from pcr_exp.analysis.explore import check_fits
    from pcr_exp.analysis.tolerance_page import META_FILE, load_tolerance

    if folder is None:
        return None
    if not (folder / META_FILE).is_file():
        raise RunError(
            f"--tolerance {folder}: there is no {META_FILE}. Wanted the folder of a finished "
            "`python -m experiments.tolerance`, which prints it."
        )
    measured = load_tolerance(folder)
    check_fits(measured.facts, num_groups)
    return measured


def explore_task(
    config: ToleranceConfig,
    crops: CropSettings,
    dataset: Dataset,
    measured: Measured,
    samples: Sequence[Sample],
    path: Path,
) -> None:
    """Make the page at the end of a task's measurement, from image files: no records are needed.

    Raises:
        RecordError: no image can be shown.
        StorageError: the page cannot be written.
    """
    from pcr_exp.analysis.explore import EpochFacts
    from pcr_exp.images.decode import ProgressiveJpeg
    from pcr_exp.measuring.explore import choose_by_class, images_in_files

    label, codec = config.dataset.label, ProgressiveJpeg(config.records.scans.script)
    images = images_in_files(samples, label, dataset.classes[label], codec, config.max_pixels)
    shown = _shown(
        images,
        config.num_workers,
        title=measured.facts.dataset,
        groups=config.groups,
        gallery=choose_by_class(images, config.num_explored_images),
        crops=crops,
        epoch=EpochFacts(
            num_images=measured.facts.num_train_images,
            images_per_record=measured.facts.images_per_record,
            image_bytes=measured.group_bytes.mean(axis=1).tolist(),
        ),
        task=measured,
        storage=config.storage,
    )
    _write(path, shown)


def _require_ours(path: Path, force: bool) -> None:
    """Refuse to overwrite a file that is not a page of ours, before any image is read."""
    from pcr_exp.analysis.explore import MARK

    if not path.parent.is_dir():
        raise RunError(f"-o {path}: there is no folder {path.parent}. Make it, or name another file.")
    if path.is_dir():
        raise RunError(f"-o {path}: that is a folder. Name a file in it, such as {path / 'explore.html'}.")
    if force or not path.exists():
        return
    with path.open("rb") as file:
        is_ours = MARK.encode() in file.read(_MARK_WITHIN_BYTES)
    if not is_ours:
        raise RunError(
            f"{path} already exists and is not a page of this command. Name another file (-o), or use "
            "--force."
        )


def _write(path: Path, shown: Shown) -> Path:
    from pcr_exp.analysis.explore import explore_page
    from pcr_exp.system.atomic import write_atomic

    page = explore_page(shown).encode()
    write_atomic(path, [page])
    for name, reason in (*shown.unread.items(), *shown.explored.left_out.items()):
        print(printable(f"left out: {name}: {reason}"), file=sys.stderr)
    if shown.explored.num_too_many:
        fit = counted(len(shown.explored.seen), "image")
        said = f"{fit} fit in {shown.max_bytes / 1e6:g} MB; {shown.explored.num_too_many} more were requested"
        print(f"{said} (raise --max-mb, or lower --crop-px).", file=sys.stderr)
    images = counted(len(shown.explored.seen), "image")
    print(
        printable(f"{path}: {images} at {counted(len(shown.groups), 'scan group')}, {len(page) / 1e6:.1f} MB")
    )
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Exits with status 1 if no page can be made."""
    parser = argparse.ArgumentParser(
        prog=as_typed("python -m experiments.explore"),
        description=as_typed(__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "root", help="a record (.pcr), or the folder or address of a split's or a dataset's records"
    )
    parser.add_argument("-o", "--output", help="file of the page (default: <dataset>-<split>.html)")
    parser.add_argument(
        "--images",
        type=int,
        default=48,
        help="number of images in the grid, if they fit (default: %(default)s)",
    )
    parser.add_argument(
        "--label", help="label whose classes order the grid (default: the first label of the records)"
    )
    parser.add_argument(
        "--classes",
        type=lambda names: names.split(","),
        default=(),
        help="names of the classes to show, separated by commas (default: a selection of all)",
    )
    parser.add_argument("--tolerance", type=Path, help="folder of a finished measurement of `tolerance`")
    parser.add_argument(
        "--crop-px",
        type=int,
        help=f"side of the crop in pixels (default: that of --tolerance, or {_CROP_PX})",
    )
    parser.add_argument(
        "--crop-fraction", type=float, default=0.875, help="as dataset.augment.eval_crop_fraction"
    )
    parser.add_argument(
        "--decode", choices=DECODE_MODES, help="as loader.decode (default: that of --tolerance, or scaled)"
    )
    parser.add_argument(
        "--antialias", action=argparse.BooleanOptionalAction, default=ANTIALIAS, help="as loader.antialias"
    )
    parser.add_argument(
        "--storage", help="storage of configs/storage, such as hdd, at which the sliders start"
    )
    parser.add_argument(
        "--max-mb", type=float, default=15.0, help="largest size of the page in MB (default: %(default)g)"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a file that is not a page of this command"
    )
    try:
        explore(parser.parse_args(arguments))
    except PcrExpError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
