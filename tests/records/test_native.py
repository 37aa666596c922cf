"""Real photographs from cameras and the web, if the data are next to the checkout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from records_encoding import encode
from records_storage import FolderStorage

from pcr_exp.datasets.sample import Sample
from pcr_exp.images.jpeg import read_header
from pcr_exp.records.reader import RecordSet
from tests.images.test_transcode import coefficients

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def pick(folder: str, num_images: int) -> list[Path]:
    """Return images spread evenly over a folder; skip if it is missing."""
    if not (DATA / folder).is_dir():
        pytest.skip(f"../shared/data is not here: {DATA / folder}")
    paths = sorted(path for path in (DATA / folder).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    return paths[:: max(1, len(paths) // num_images)][:num_images]


@pytest.mark.parametrize("num_images", [6, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("folder", ["imagenet_native_sample", "ham10000_native_sample"])
def test_native_photographs_are_stored_faithfully(folder: str, num_images: int, tmp_path: Path) -> None:
    paths = pick(folder, num_images)
    samples = [Sample(path.name, path, {"kind": 0, "size": 0}) for path in paths]
    report = encode(samples, tmp_path, images_per_record=len(samples))
    assert report.num_images == len(samples) == num_images
    storage = FolderStorage(tmp_path)
    pcr, baseline = RecordSet(storage, "pcr"), RecordSet(storage, "baseline")
    prefixes = [pcr.read_prefix(0, group) for group in range(1, 11)]
    originals = baseline.read_prefix(0, 1)
    for i, path in enumerate(paths):
        original, whole = path.read_bytes(), prefixes[-1].encoded(i)
        assert originals.encoded(i) == original
        before, after = (coefficients(tmp_path / "image.jpg", jpeg) for jpeg in (original, whole))
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(simplejpeg.decode_jpeg(whole), simplejpeg.decode_jpeg(original))
        header = read_header(original)
        for prefix in prefixes:
            decoded = simplejpeg.decode_jpeg(prefix.encoded(i), strict=True)
            assert decoded.shape[:2] == (header.height_px, header.width_px)


def test_bytes_per_group_are_near_those_measured_on_imagenet(tmp_path: Path) -> None:
    """DESIGN.md, section 3: groups 1, 2, 5 are 6.1, 13.8, 46.6 % of group 10, which is 93.7 % of baseline."""
    paths = pick("imagenet_native_sample", 100)
    samples = [Sample(path.name, path, {"kind": 0, "size": 0}) for path in paths]
    encode(samples, tmp_path, images_per_record=len(samples))
    index = RecordSet(FolderStorage(tmp_path), "pcr").index
    whole = index.epoch_bytes(10)
    for group, share in {1: 0.061, 2: 0.138, 5: 0.466}.items():
        assert index.epoch_bytes(group) / whole == pytest.approx(share, abs=0.03)
    baseline = RecordSet(FolderStorage(tmp_path), "baseline").index.epoch_bytes(1)
    assert whole / baseline == pytest.approx(0.937, abs=0.03)
