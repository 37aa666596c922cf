"""`pcr_exp.open` gives images by index, as needed by torch's data loaders and others built on them."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from storage_http_server import range_server
from torch.utils.data import DataLoader, default_collate
from torchvision import tv_tensors
from torchvision.transforms import v2

import pcr_exp as pcr
from pcr_exp.api import dataset
from pcr_exp.errors import ConfigError, RecordError, StorageError
from pcr_exp.images.resample import whole_image
from pcr_exp.loading.whole_images import WholeImageTransform
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

CROP = v2.Compose([v2.CenterCrop(32), v2.ToDtype(torch.float32, scale=True)])
SCHEDULE = {"name": "schedule", "groups": [1, 10], "milestones": [1]}
MIXTURE = {"name": "mixture", "group": 5, "candidates": [1, 5, 10]}


def decoded(split: Path, group: int) -> list[np.ndarray]:
    """Every image of the progressive records, from whole prefixes."""
    records = RecordSet(LocalStorage(split), "pcr")
    decode, images = records.open_decoder("scaled"), []
    for record in range(len(records.index.records)):
        prefix = records.read_prefix(record, group)
        images += [whole_image(decode(prefix.encoded(i), group, "")) for i in range(len(prefix))]
    return images


def test_images_and_labels_are_those_of_the_records(split: Path) -> None:
    train = pcr.open(split, scan="group_2", label="number")
    wanted = decoded(split, 2)
    assert len(train) == 100 and train.classes[17] == "17"
    for index in (17, 0, 99, -1, 16):
        image, label = train[index]
        assert label == index % 100
        assert (image == wanted[index]).all()
    some = train.__getitems__([30, 3, 31, 30])
    assert [label for _, label in some] == [30, 3, 31, 30]
    assert all((image == wanted[label]).all() for image, label in some)
    assert train.targets == list(range(100))
    assert train.id(17) == "017.jpg"


def test_one_image_takes_a_small_read_for_each_group(split: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "_MAX_GAP_BYTES", 0)  # else the adjacent groups are read at once
    train = pcr.open(split, scan="group_2", label="number")
    train[16]  # caches the table that locates images
    storage = train.records.storage.inner
    before = storage.num_reads, storage.bytes_read
    train[20]
    read = storage.num_reads - before[0], storage.bytes_read - before[1]
    assert read == (2, len(train.encoded(20, 2)) - 2)


def test_neighbours_come_with_one_read(split: Path) -> None:
    train = pcr.open(split, scan="group_2", label="number")
    train[16]
    before = train.records.storage.inner.num_reads
    train.__getitems__(range(16, 32))
    assert train.records.storage.inner.num_reads - before == 1  # the groups are small, and near each other


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_it_works_in_torch_s_loader(split: Path, context: str) -> None:
    train = pcr.open(split, scan="group_5", label="number", transform=CROP)
    workers = {"num_workers": 1, "multiprocessing_context": context}
    seen = [(images, labels) for images, labels in DataLoader(train, batch_size=30, **workers)]
    assert [len(labels) for _, labels in seen] == [30, 30, 30, 10]
    assert torch.cat([labels for _, labels in seen]).tolist() == list(range(100))
    here = [train[index][0] for index in (0, 50, 99)]
    assert torch.equal(torch.cat([images for images, _ in seen])[[0, 50, 99]], torch.stack(here))


def test_it_is_pickled_without_what_is_open(split: Path) -> None:
    train = pcr.open(split, scan="group_5", label="number")
    first = train[3][0]
    again = pickle.loads(pickle.dumps(train))
    assert again._reader is None and again.records.storage._opened is None
    assert (again[3][0] == first).all()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_schedules_and_mixtures_follow_set_epoch(split: Path, num_workers: int) -> None:
    """Schedules follow `set_epoch` in persistent workers, too."""
    by_group = {group: decoded(split, group) for group in (1, 5, 10)}
    train = pcr.open(split, scan=SCHEDULE, label="number", transform=v2.Compose([v2.CenterCrop(32)]))
    loader = DataLoader(train, batch_size=50, num_workers=num_workers, persistent_workers=num_workers > 0)
    for epoch, group in ((0, 1), (1, 10), (2, 10), (0, 1)):
        train.set_epoch(epoch)
        images = torch.cat([images for images, _ in loader])
        assert all(
            torch.equal(images[i], centre_of(by_group[group][i]))
            for i in (0, 40, 99)  # images 0 and 40 of this fixture are greyscale
        )
    mixed = pcr.open(split, scan=MIXTURE, label="number", seed=3)
    drawn = []
    for epoch in range(4):
        mixed.set_epoch(epoch)
        (found,) = [
            group
            for group in by_group
            if mixed[7][0].shape == by_group[group][7].shape and (mixed[7][0] == by_group[group][7]).all()
        ]
        drawn.append(found)
    assert drawn == [mixed._policy.group(epoch, 0) for epoch in range(4)] and len(set(drawn)) > 1


def centre_of(pixels: np.ndarray) -> torch.Tensor:
    return v2.CenterCrop(32)(tv_tensors.Image(torch.from_numpy(pixels).permute(2, 0, 1)))


def test_policies_that_follow_training_are_refused_by_index_with_the_reason(split: Path) -> None:
    train = pcr.open(split, scan="balanced", label="number")
    with pytest.raises(ConfigError, match=r"because it follows training.*Use \.loader\(\.\.\.\)"):
        train[0]


def test_transforms_get_what_they_take(split: Path) -> None:
    def kind(images_as: str) -> Any:
        train = pcr.open(split, label="number", transform=lambda image: image, images_as=images_as)
        return train[1][0]

    assert isinstance(kind("auto"), np.ndarray) and kind("auto").dtype == np.uint8
    assert isinstance(kind("pil"), Image.Image)
    assert isinstance(kind("tensor"), tv_tensors.Image) and kind("tensor").shape[0] == 3
    with pytest.raises(ConfigError, match="images_as='numpy': wanted auto, array, pil, tensor"):
        kind("numpy")
    from torchvision import transforms as v1

    wanted = {
        v1.Compose([]): "pil",
        v2.Compose([CROP]): "tensor",
        torch.nn.Sequential(v2.CenterCrop(8)): "tensor",
    }
    assert {t: WholeImageTransform(t)._images_as for t in wanted} == wanted


@pytest.mark.parametrize("again", [copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_copies_have_epochs_of_their_own_that_workers_see(split: Path, again: Callable[..., Any]) -> None:
    train = pcr.open(split, scan=SCHEDULE, label="number", transform=CROP)
    copied = again(train)
    loader = DataLoader(copied, batch_size=50, num_workers=1, persistent_workers=True)
    found = []
    for epoch in (0, 1):
        copied.set_epoch(epoch)
        found.append(torch.cat([images for images, _ in loader]))
    assert not torch.equal(*found) and int(train._epoch) == 0


@pytest.mark.parametrize(
    ("scan", "seed", "has_epochs"),
    [("group_2", None, False), ("baseline", None, False), ("all", 1, True), (SCHEDULE, None, True)],
)
def test_what_every_epoch_reads_alike_has_no_set_epoch(
    split: Path, scan: Any, seed: int | None, has_epochs: bool
) -> None:
    """Datasets that need no epoch lack `set_epoch`: timm's script then calls the sampler's."""
    train = pcr.open(split, scan=scan, label="number", seed=seed)
    assert hasattr(train, "set_epoch") == has_epochs
    if not has_epochs:
        with pytest.raises(AttributeError, match=r"scan='\w+' without a seed: every epoch is read alike"):
            train.set_epoch(1)
        assert len(pickle.loads(pickle.dumps(train))) == len(train)


def test_what_is_random_is_seeded_image_by_image(split: Path) -> None:
    def noise(_: object) -> np.ndarray:
        return np.random.random(2)  # noqa: NPY002

    train = pcr.open(split, label="number", transform=noise, seed=4)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    wanted_next = (torch.rand(1), np.random.random())  # noqa: NPY002
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    here = {index: train[index][0].tolist() for index in (5, 6)}
    assert (torch.rand(1), np.random.random()) == wanted_next  # noqa: NPY002 (the process's own: untouched)
    batches = DataLoader(train, batch_size=7, num_workers=2)
    there = torch.cat([images for images, _ in batches])
    assert {5: there[5].tolist(), 6: there[6].tolist()} == here and here[5] != here[6]
    train.set_epoch(1)
    assert train[5][0].tolist() != here[5]
    assert train[-95][0].tolist() == train[5][0].tolist()


def test_one_of_several_labels_has_to_be_chosen(split: Path) -> None:
    with pytest.raises(ConfigError, match="label=None: wanted one of number, parity, the labels that"):
        pcr.open(split)


def test_labels_are_any_integers(split: Path) -> None:
    named = pcr.open(split, label="parity", labels={"even": -100, "odd": 7})
    assert [named[i][1] for i in (0, 1)] == [-100, 7]
    assert set(named.targets) == {-100, 7}
    by_function = pcr.open(split, label="number", labels=lambda name: 2 * int(name))
    assert by_function[21][1] == 42
    with pytest.raises(ConfigError, match=r"class 'odd' has no number \(KeyError: 'odd'\); wanted one"):
        pcr.open(split, label="parity", labels={"even": 0})
    with pytest.raises(ConfigError, match=r"class 'even' has no number \(TypeError"):
        pcr.open(split, label="parity", labels={"even": "0", "odd": 1})
    with pytest.raises(ConfigError, match=r"labels: classes have rows of different lengths"):
        pcr.open(split, label="parity", labels={"even": [0], "odd": [1, 2]})
    with pytest.raises(
        ConfigError, match=r"labels='one_hot': wanted a mapping, a function, multi_hot or None"
    ):
        pcr.open(split, label="parity", labels="one_hot")


def test_labels_are_real_numbers_and_rows_of_several(split: Path) -> None:
    numbers = pcr.open(split, label="number", labels=lambda name: float(name) / 2)
    rows = pcr.open(split, label="parity", labels="multi_hot")
    assert [numbers[i][1].item() for i in (3, 4)] == [1.5, 2.0] and rows[3][1].tolist() == [0.0, 1.0]
    rows[3][1].zero_()  # as an in-place transform of labels would
    assert rows[3][1].tolist() == [0.0, 1.0]
    for data in (numbers, rows):
        wanted = torch.tensor(data.targets[:10])
        loader = DataLoader(
            data, batch_size=10, collate_fn=lambda batch: default_collate([y for _, y in batch])
        )
        with data.loader(10, image_size=32, shuffle=False, num_workers=0) as own:
            for labels in (next(iter(loader)), next(iter(own))[1]):
                assert labels.dtype == torch.float32 and torch.equal(labels, wanted)


@pytest.mark.parametrize(
    ("scan", "error", "message"),
    [
        ("group_11", RecordError, "scan group 11 was asked for, but the pcr records .* have groups 1 to 10"),
        (0, RecordError, "scan group 0 was asked for"),
        ("fast", ConfigError, "scan='fast': wanted group_1, .*balanced, .*cosine"),
        (None, ConfigError, "scan=None: wanted"),
        ({"name": "schedule", "gruops": [1]}, ConfigError, "schedule has no 'gruops'; it has .*groups"),
        ({"name": "schedule", "groups": [1], "milestones": [1]}, ConfigError, "scan.milestones"),
        ({"name": "balanced", "floor": "plateaux"}, ConfigError, "scan='plateaux': wanted"),
        (SCHEDULE | {"group": [2, 10]}, ConfigError, "'group' of schedule is .*int. Did you mean 'groups'"),
        (SCHEDULE | {"group": 7}, ConfigError, "schedule does not use 'group'. Did you mean 'groups'"),
        ({"name": "mssim", "group": 2}, ConfigError, "mssim does not use 'group'"),
        (SCHEDULE | {"milestones": 3}, ConfigError, r"'milestones' of schedule is 3, wanted list\[int\]"),
        (SCHEDULE | {"groups": ["${x}"]}, ConfigError, "scan=.*groups.*Interpolation key 'x' not found"),
        (["group_1"], ConfigError, r"scan=\['group_1'\]: wanted group_1"),
    ],
)
def test_scans_that_are_not_there(split: Path, scan: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pcr.open(split, scan=scan, label="number")


def test_the_folder_may_be_the_split_s_or_its_encoding_s(split: Path, tmp_path: Path) -> None:
    for root in (split, split / "pcr", str(split), f"file://{split}"):
        assert pcr.open(root, scan=3, label="number").records.index.encoding == "pcr"
    baseline = pcr.open(split, scan="baseline", label="number")
    assert baseline.records.index.encoding == "baseline"
    assert (baseline[3][0] == pcr.open(split, label="number")[3][0]).all()
    with pytest.raises(ConfigError, match="wanted a scan group, since these are pcr records"):
        pcr.open(split / "pcr", scan="baseline", label="number")
    with pytest.raises(RecordError, match=r"neither pcr/index\.json nor index\.json.*does not exist"):
        pcr.open(tmp_path)
    shutil.copytree(split, tmp_path / "val")
    with pytest.raises(RecordError, match=r"It holds splits: open one of .*val"):
        pcr.open(tmp_path)


@pytest.mark.parametrize("scheme", ["ftp", "s4"])
def test_a_scheme_that_cannot_be_opened_is_named(scheme: str) -> None:
    wanted = rf"{scheme}://x\.invalid/y cannot be opened by .* {scheme}://.*Wanted a local folder, or .*s3://"
    with pytest.raises(StorageError, match=wanted):
        pcr.open(f"{scheme}://x.invalid/y")


def test_no_image_has_less_than_a_pixel(split: Path) -> None:
    with pytest.raises(ConfigError, match="max_pixels=0: wanted at least 1"):
        pcr.open(split, max_pixels=0)


def test_from_a_server_too_and_after_a_fork(split: Path) -> None:
    with range_server(split) as server:
        train = pcr.open(server.url, scan="group_1", label="number", transform=CROP)
        here = train.__getitems__([40, 2, 99])
        assert [label for _, label in here] == [40, 2, 99]
        context = multiprocessing.get_context("fork")
        workers = {"num_workers": 1, "multiprocessing_context": context}
        images, labels = next(iter(DataLoader(train, batch_size=3, sampler=[40, 2, 99], **workers)))
        assert labels.tolist() == [40, 2, 99]
        assert torch.equal(images, torch.stack([image for image, _ in here]))


def test_no_image_beyond_the_last(split: Path) -> None:
    train = pcr.open(split, label="number")
    for index in (100, -101):
        with pytest.raises(IndexError, match=f"image {index} of 100"):
            train[index]


def test_a_damaged_image_is_named_and_others_are_had(split: Path, tmp_path: Path) -> None:
    shutil.copytree(split, tmp_path / "damaged")
    train = pcr.open(tmp_path / "damaged", label="number")
    path = tmp_path / "damaged/pcr/record-000001.pcr"
    start = int(train._open()[0].table(1, 3).bounds[4])
    data = bytearray(path.read_bytes())
    data[start] ^= 1
    path.write_bytes(data)
    with pytest.raises(RecordError, match=r"image 4 in group 3 of record pcr/record-000001\.pcr"):
        train.__getitems__([16, 20])
    assert train[16][1] == 16
