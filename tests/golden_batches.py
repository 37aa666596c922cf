"""Fingerprints of batches for each NUMERICS number.

`python tests/golden_batches.py` makes them again for the current number, in tests/golden_batches.json. Do
this only after raising the number: if they differ otherwise, pixels or orders of published runs have changed.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import cv2
import numpy as np
import torch
from numbered_records import encode_numbered
from PIL import Image

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import DECODE_MODES, LoaderConfig
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.echo.variants import BatchEchoConfig, ExampleAfterConfig, ExampleBeforeConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.transform import EvalTransform, TrainTransform
from pcr_exp.numerics import NUMERICS
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

TABLE = Path(__file__).with_suffix(".json")
NUM_SAMPLES = 61
GROUPS = (1, 2, 5, 10)
ECHOES = {
    "echo_before": ExampleBeforeConfig(factor=2, buffer=20),
    "echo_finer": ExampleBeforeConfig(factor=2, repeat_groups=[10]),
    "echo_after": ExampleAfterConfig(factor=1.5, buffer=20),
    "echo_batch": BatchEchoConfig(factor=2),
}


def pictures() -> Iterator[bytes]:
    """Yield JPEG files of waves and noise, drawn with numpy's generator and encoded by Pillow."""
    rng = np.random.default_rng(0)
    for i in range(NUM_SAMPLES):
        rows, columns = 50 + 3 * (i % 7), 60 + 5 * (i % 5)
        y, x = np.mgrid[:rows, :columns]
        waves = [np.sin((x * a + y * b) / 9 + c) for a, b, c in rng.uniform(-2, 2, (3, 3))]
        pixels = np.stack(waves, axis=-1) * 60 + 128 + rng.normal(0, 12, (rows, columns, 3))
        image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        buffer = io.BytesIO()
        (image.convert("L") if i % 6 == 5 else image).save(buffer, "JPEG", quality=88)
        yield buffer.getvalue()


def make_records(folder: Path) -> Path:
    """Write both encodings, in records of eight; the label of each picture is its number."""
    return encode_numbered(pictures(), folder, images_per_record=8, dataset="waves")


def open_loader(records: Path, encoding: str = "pcr", group: int = 2, **given: object) -> RecordLoader:
    """Open a loader with the settings of the first fingerprints, except for those in `given`."""
    settings = {
        "config": LoaderConfig(num_workers=0, decode="unsmoothed"),
        "transform": TrainTransform(24, AugmentConfig()),
        "label": "number",
        "batch_size": 7,
        "seed": 3,
        "shuffle": True,
    }
    opened = RecordSet(LocalStorage(records), encoding)
    return RecordLoader(opened, StaticScan(group), **(settings | given))  # type: ignore[arg-type]


def batches(loader: RecordLoader) -> list[Batch]:
    with loader:
        return list(loader.batches(0, 0, 2))


def of_processes(records: Path, world_size: int) -> list[Batch]:
    """Return all batches of `world_size` processes, ordered by epoch, update and micro-batch."""
    found = [
        batch
        for rank in range(world_size)
        for batch in batches(open_loader(records, rank=rank, world_size=world_size))
    ]
    return sorted(found, key=lambda batch: (batch.epoch, batch.index, batch.slot))


def orders(records: Path) -> dict[str, str]:
    """Return fingerprints of the order of samples, which does not depend on decoding libraries."""
    found = {f"{count}_processes": of_processes(records, count) for count in (1, 2, 4)}
    evaluation = open_loader(records, shuffle=False, transform=EvalTransform(24, AugmentConfig()))
    echoed = {name: batches(open_loader(records, echo=echo)) for name, echo in ECHOES.items()}
    wider = LoaderConfig(num_workers=0, lanes=4, shuffle_records=2)
    all_batches = {
        **found,
        **echoed,
        "evaluation": batches(evaluation),
        "wider_windows": batches(open_loader(records, config=wider)),
    }
    return {name: _key(_order(batch) for batch in given) for name, given in all_batches.items()}


@contextmanager
def code_for_any_cpu() -> Iterator[None]:
    """Use OpenCV's plain code: its code for particular CPUs rounds differently when it enlarges.

    It enlarges with Intel's IPP, whose pixels differ between AVX2 and AVX-512. With AVX2, they differ from
    the plain code's by one grey level in 4 % of the values of `scaled` at group 1, and in 2 % at group 2.
    """
    before = cv2.useOptimized()
    cv2.setUseOptimized(False)
    try:
        yield
    finally:
        cv2.setUseOptimized(before)


def decoded_as(decode: str, records: Path, group: int) -> list[Batch]:
    return batches(open_loader(records, group=group, config=LoaderConfig(num_workers=0, decode=decode)))


@code_for_any_cpu()
def pixels(records: Path) -> dict[str, str]:
    """Return fingerprints of the model's inputs, which also depend on libjpeg-turbo and OpenCV."""
    found = {}
    for decode in DECODE_MODES:
        config = LoaderConfig(num_workers=0, decode=decode)
        found[f"{decode}_baseline"] = batches(open_loader(records, "baseline", 1, config=config))
        found |= {f"{decode}_group_{group}": decoded_as(decode, records, group) for group in GROUPS}
    found |= {name: batches(open_loader(records, echo=echo)) for name, echo in ECHOES.items()}
    found |= {f"{count}_processes": of_processes(records, count) for count in (2, 4)}
    transform = EvalTransform(24, AugmentConfig())
    found["evaluation"] = batches(open_loader(records, "baseline", 1, shuffle=False, transform=transform))
    return {name: _key(batch.images.numpy().tobytes() for batch in given) for name, given in found.items()}


def sources() -> str:
    """Return a fingerprint of the JPEG files: with another encoder, files and all pixels differ."""
    return _key(pictures())


def versions() -> dict[str, str]:
    """Return the versions of the libraries that pixels depend on."""
    return {name: version(name) for name in ("numpy", "pillow", "simplejpeg", "opencv-python-headless")}


def _order(batch: Batch) -> bytes:
    numbers = (batch.epoch, batch.index, batch.slot, batch.num_batches, *batch.labels.tolist())
    return ",".join(map(str, numbers)).encode() + b";"


def _key(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def assert_same(actual: Iterable[Batch], expected: Iterable[Batch]) -> None:
    actual, expected = list(actual), list(expected)
    assert len(actual) == len(expected) > 0
    for a, b in zip(actual, expected, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)
        for field in ("epoch", "index", "num_batches", "record_bytes", "full_bytes", "group", "num_repeats"):
            assert getattr(a, field) == getattr(b, field), field


def main() -> None:
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        records = make_records(Path(folder))
        table[str(NUMERICS)] = {
            "versions": versions(),
            "sources": sources(),
            "orders": orders(records),
            "pixels": pixels(records),
        }
    TABLE.write_text(json.dumps(table, indent=1) + "\n")
    sys.stdout.write(f"{TABLE.name}: {len(table)} numbers\n")


if __name__ == "__main__":
    main()
