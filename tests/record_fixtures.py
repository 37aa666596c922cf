"""A hundred small photographs as records, each with a unique label that identifies it in a batch."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import skimage.data
from numbered_records import encode_numbered
from PIL import Image

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.transform import TrainTransform
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage

NUM_SAMPLES = 100


@pytest.fixture(scope="session")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of both encodings: seven records of up to 16 images, one in five grey."""
    folder = tmp_path_factory.mktemp("loading")
    photo = Image.fromarray(skimage.data.astronaut())
    jpegs = []
    for i in range(NUM_SAMPLES):
        left, top = 4 * i, 3 * i
        crop = photo.crop((left, top, left + 60 + i % 7, top + 50 + i % 5))
        buffer = io.BytesIO()
        (crop.convert("L") if i % 5 == 0 else crop).save(buffer, "JPEG", quality=85)
        jpegs.append(buffer.getvalue())
    return encode_numbered(jpegs, folder, images_per_record=16, parity=["even", "odd"])


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
    """Return a function that opens loaders of `records` with small settings, which arguments replace."""
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
