"""One file per image, read through our storage layer, and our loader. test_peers_all.py has all peers."""

import ast
from collections import Counter
from pathlib import Path

import pytest
from throughput_jobs import NUM_IMAGES, job, write_images

from experiments.loaders.peers import image_folder
from experiments.loaders.peers.catalogue import PEERS, absence, is_ours, open_peer
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.scan import scan_of
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.throughput import records
from pcr_exp.measuring.throughput.job import Job
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage


@pytest.mark.parametrize(("name", "decode"), [(n, PEERS[n].decode) for n in PEERS if n.startswith("image")])
def test_under_a_throttle_every_image_is_one_request(
    name: str, decode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (reason := absence(name)) is not None:
        pytest.skip(reason)
    images = write_images(tmp_path / "images")
    folder = tmp_path / "tree"
    folder.mkdir()
    image_folder.build(images, folder)
    storage = CountingStorage(LocalStorage(folder))
    monkeypatch.setattr(image_folder, "open_storage", lambda *_: storage)
    slow = StorageConfig(name="slow", requests_per_s=1000.0)
    batches = list(image_folder.batches(folder, job(name, decode, storage=slow)))
    assert Counter(len(batch) for batch in batches) == {4: 2, 2: 1}
    assert storage.num_reads == NUM_IMAGES
    assert storage.bytes_read == sum(Path(image.path).stat().st_size for image in images)


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_builds_and_reads(name: str) -> None:
    """The test reads its source, because packages that it imports may not be installed."""
    file = Path(image_folder.__file__).with_name(f"{PEERS[name].module}.py")
    found = {
        getattr(node, "asname", None) or node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.alias)
    }
    assert {"build", "batches"} <= found


def test_links_keep_the_images_where_they_are(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    folder = tmp_path / "tree"
    folder.mkdir()
    image_folder.build(images, folder)
    links = sorted(folder.rglob("*.jpg"))
    assert {link.parent.name for link in links} == {"00000", "00001"}
    assert {str(link.resolve()) for link in links} == {image.path for image in images}


@pytest.mark.parametrize("scan", ["baseline", "group_1", "group_10"])
def test_ours_reads_what_the_index_says(scan: str, split: Path) -> None:
    wanted: Job = job(scan, "libjpeg", label="number", num_epochs=2)
    batches = list(records.batches(split, wanted))
    index = RecordSet(LocalStorage(split), scan_of(scan).encoding).index
    assert sum(len(batch) for batch in batches) == 2 * index.num_samples
    assert {tuple(batch.shape[1:]) for batch in batches} == {(16, 16, 3)}
    assert records.epoch_bytes(split, scan) == index.epoch_bytes(scan_of(scan).group)


def test_a_scan_level_is_ours_and_a_peer_is_not() -> None:
    assert is_ours("group_5") and is_ours("baseline") and not is_ours("webdataset")
    assert (scan_of("group_5").encoding, scan_of("group_5").group) == ("pcr", 5)
    assert scan_of("baseline").encoding == "baseline"
    assert absence("group_5") is None and open_peer("group_5") is records


@pytest.mark.parametrize("name", ["group_0", "group_11", "group_x", "imagefolder", ""])
def test_no_such_loader(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"is no loader: wanted baseline, group_1 to group_10, or image_folder"
    ):
        absence(name)
