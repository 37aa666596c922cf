"""A folder such as a reader of the pages would have: photographs and their records."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import skimage.data
from composing import compose
from PIL import Image
from storage_hub_server import running_hub

import pcr_exp as pcr

RECORDS = "data/records/pets-7d4f5527"
"""Path of the records on pages. It ends in a key of the photographs, which Pillow's version may change."""


def write_pets(folder: Path) -> None:
    """Write 120 photographs of 200 px into four class folders."""
    for name in ("astronaut", "coffee", "rocket", "chelsea"):
        photograph = Image.fromarray(getattr(skimage.data, name)())
        draw = np.random.default_rng(0)
        (folder / name).mkdir(parents=True)
        for number in range(30):
            left, top = (int(draw.integers(0, side - 200)) for side in photograph.size)
            photograph.crop((left, top, left + 200, top + 200)).save(
                folder / name / f"{number:02}.jpg", quality=90
            )


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reader")
    write_pets(root / "pets")
    config = compose(
        "prepare", "dataset=folder", f"dataset.root={root / 'pets'}", f"records.root={root / 'data/records'}"
    )
    made = pcr.prepare_records(config.dataset, config.records)
    if made != root / RECORDS:
        made.rename(root / RECORDS)
    return root


@pytest.fixture
def reader(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the prepared folder, as the working directory; a local Hub has its records too."""
    here = tmp_path / "reader"
    shutil.copytree(prepared, here)
    monkeypatch.chdir(here)
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        records = here / RECORDS
        hub.files = {str(p.relative_to(records)): p.read_bytes() for p in records.rglob("*") if p.is_file()}
        yield here
