"""Records of another scan script are written, read, reused, measured and opened with its own groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from jpeg_photos import needs_jpegtran

import pcr_exp as pcr
from pcr_exp.config.records import RecordsConfig
from pcr_exp.config.scan_scripts import ScanOfScriptConfig, ScanScriptConfig
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.errors import ConfigError, RecordError
from pcr_exp.images.decode import decode as decode_whole
from pcr_exp.measuring.quality import measure_quality
from pcr_exp.records.prepare import prepare_records
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

pytestmark = needs_jpegtran
SPECTRAL = ScanScriptConfig(
    name="spectral",
    scans=[
        ScanOfScriptConfig(components=[0, 1, 2], Ss=0, Se=0),
        ScanOfScriptConfig(components=[0], Ss=1, Se=9),
        ScanOfScriptConfig(components=[1], Ss=1, Se=63),
        ScanOfScriptConfig(components=[2], Ss=1, Se=63),
        ScanOfScriptConfig(components=[0], Ss=10, Se=63),
    ],
)


@pytest.fixture
def folder(dataset: FolderConfig, records: RecordsConfig) -> Path:
    return prepare_records(dataset, replace(records, scans=SPECTRAL))


def test_records_have_the_groups_of_their_script(
    folder: Path, dataset: FolderConfig, records: RecordsConfig
) -> None:
    assert folder != prepare_records(dataset, records), "beside those of the default"
    found = RecordSet(LocalStorage(folder / "train"), "pcr")
    assert (found.index.num_groups, found.index.scans) == (5, SPECTRAL.script.id)
    prefix = found.read_prefix(0, 1)
    originals = RecordSet(LocalStorage(folder / "train"), "baseline").read_prefix(0, 1)
    decode = found.open_decoder("scaled")
    for group in range(1, 6):
        prefix = prefix if group == 1 else prefix.extended(found.read_extension(0, group - 1, group))
        image = decode(prefix.encoded(0), group, "it")
    pixels = image.part(0, 0, image.height_px, image.width_px).pixels
    np.testing.assert_array_equal(pixels, decode_whole(originals.encoded(0)))
    with pytest.raises(RecordError, match=r"scan group 6 was asked for.*groups 1 to 5"):
        found.read_prefix(0, 6)


def test_an_interrupted_or_second_encode_gives_the_same_bytes(
    folder: Path, dataset: FolderConfig, records: RecordsConfig, tmp_path: Path
) -> None:
    again = replace(records, root=str(tmp_path / "again"), scans=SPECTRAL, reuse_from=str(folder))
    other = prepare_records(dataset, again)
    for path in sorted(folder.glob("*/*/*.pcr")):
        assert (other / path.relative_to(folder)).read_bytes() == path.read_bytes()


def test_records_of_another_script_are_not_reused(
    folder: Path, dataset: FolderConfig, records: RecordsConfig, tmp_path: Path
) -> None:
    with pytest.raises(RecordError, match=r"the script 'jpeg_012.*wanted 10 by 'libjpeg-default'"):
        prepare_records(dataset, replace(records, root=str(tmp_path / "new"), reuse_from=str(folder)))


def test_quality_and_the_torch_dataset_follow_the_number_of_groups(folder: Path) -> None:
    found = RecordSet(LocalStorage(folder / "train"), "pcr")
    quality = measure_quality(found, range(1, 6), max_images=2)
    last = quality[quality["group"] == 5]
    assert (last["ms_ssim"] == 1).all()
    assert (quality[quality["group"] == 2]["ms_ssim"] < 1).all()
    whole = [pcr.open(folder / "train", scan=scan)[0][0] for scan in ("full", "all", "group_5", "baseline")]
    for image in whole[1:]:
        np.testing.assert_array_equal(np.asarray(image), np.asarray(whole[0]))
    first = pcr.open(folder / "train", scan="group_1")[0][0]
    assert not np.array_equal(np.asarray(first), np.asarray(whole[0]))
    assert pcr.open(folder / "train", scan={"name": "schedule", "groups": [1, 10], "milestones": [1]})
    with pytest.raises(ConfigError, match=r"scan\.candidates=\[1, 7\]: wanted scan groups .* 1\.\.5"):
        pcr.open(folder / "train", scan={"name": "mixture", "group": 1, "candidates": [1, 7]})
