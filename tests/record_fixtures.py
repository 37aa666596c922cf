"""A hundred small photographs as records; each has a label of its own, so a batch tells which it has."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import skimage.data
from PIL import Image

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.datasets.sample import Sample
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.transform import TrainTransform
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.encode import encode_split
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage

NUM_SAMPLES = 100


@pytest.fixture(scope="session")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of both encodings: seven records of up to 16 images, one in five grey."""
    folder = tmp_path_factory.mktemp("loading")
    photo = Image.fromarray(skimage.data.astronaut())
    samples = []
    for i in range(NUM_SAMPLES):
        left, top = 4 * i, 3 * i
        crop = photo.crop((left, top, left + 60 + i % 7, top + 50 + i % 5))
        buffer = io.BytesIO()
        (crop.convert("L") if i % 5 == 0 else crop).save(buffer, "JPEG", quality=85)
        path = folder / f"{i:03d}.jpg"
        path.write_bytes(buffer.getvalue())
        samples.append(Sample(path.name, path, {"number": i, "parity": i % 2}))
    encode_split(
        samples,
        {"number": [str(i) for i in range(NUM_SAMPLES)], "parity": ["even", "odd"]},
        folder / "records",
        dataset="astronaut",
        split="train",
        images_per_record=16,
        on_error="fail",
        num_workers=1,
        progress=lambda done, total: None,  # noqa: ARG005
    )
    return folder / "records"


@pytest.fixture
def storage(split: Path) -> CountingStorage:
    return CountingStorage(LocalStorage(split))


@pytest.fixture
def records(storage: CountingStorage) -> RecordSet:
    """The progressive records, through `storage`, whose counters start after the index was read."""
    opened = RecordSet(storage, "pcr")
    storage.num_reads = storage.bytes_read = 0
    return opened


@pytest.fixture
def open_loader(records: RecordSet) -> Callable[..., RecordLoader]:
    """A loader of `records` with small settings, any of which can be given."""
    opened: list[RecordLoader] = []

    def open_with(num_workers: int = 0, group: int = 5, **given: object) -> RecordLoader:
        settings = {
            "records": records,
            "policy": StaticScan(group),
            "config": LoaderConfig(num_workers=num_workers, lanes=4),
            "transform": TrainTransform(32, AugmentConfig()),
            "label": "number",
            "batch_size": 12,
            "seed": 7,
            "shuffle": True,
        }
        opened.append(RecordLoader(**(settings | given)))
        return opened[-1]

    yield open_with
    for loader in opened:
        loader.close()
