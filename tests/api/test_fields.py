"""Fields are read, decoded, transformed and collated with their images, by index and by loader."""

from __future__ import annotations

import csv
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_samples import drawn_mask, encode_fields, fields_of, write_samples
from torch.utils.data import DataLoader
from torchvision import transforms as old_transforms
from torchvision import tv_tensors
from torchvision.transforms import v2

import pcr_exp as pcr
from pcr_exp.cli.records import command_parser
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.errors import ConfigError, LoaderError, RecordError
from pcr_exp.loading.fields import collate_fields
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.whole_images import WholeImageTransform
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.fields import RecordFields
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.cache import CachedStorage, MemoryCache
from pcr_exp.storage.counters import CountingStorage
from pcr_exp.storage.local import LocalStorage

NUM = 22
ALL = ["mask", "boxes", "caption", "meta", "pose"]
CROP = v2.Compose([v2.RandomResizedCrop(48, scale=(0.5, 1.0)), v2.RandomHorizontalFlip()])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beside")
    encode_fields(write_samples(folder / "in", NUM), folder / "train")
    return folder / "train"


def batches(made: Path, num_workers: int = 0, **settings: Any) -> list[tuple[torch.Tensor, dict[str, Any]]]:
    train = pcr.open(made, fields=ALL, transform=CROP)
    with train.loader(batch_size=8, seed=3, num_workers=num_workers, **settings) as loader:
        return list(loader)


def test_an_image_and_its_mask_are_cropped_alike(made: Path) -> None:
    found = batches(made)
    assert [len(images) for images, _ in found] == [8, 8, 6]
    seen = set()
    for images, target in found:
        assert list(target) == ["label", "mask", "boxes", "boxes_labels", "caption", "meta", "pose"]
        assert target["mask"].shape == (len(images), 48, 48) and target["mask"].dtype == torch.uint8
        light = images[:, 0] > 125  # the fixture draws images light where the mask is 1
        assert (light == target["mask"].bool()).float().mean() > 0.97
        assert type(target["mask"]) is torch.Tensor
        for i, meta in enumerate(target["meta"]):
            number = meta["number"]
            assert meta == {"number": number, "none": None}
            assert target["caption"][i] == f"Bild {number}, schön" and int(target["label"][i]) == number % 2
            assert target["pose"].shape[1:] == (2, 3) and (target["pose"][i] == number).all()
            boxes, mask = target["boxes"][i], target["mask"][i]
            assert boxes.shape == (int(number % 4 > 0), 4) and boxes.dtype == torch.float32
            assert target["boxes_labels"][i].tolist() == [number % 2] * len(boxes)
            if len(boxes) and mask.any():
                rows, columns = (axis.float() for axis in mask.nonzero(as_tuple=True))
                drawn = torch.stack([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
                assert (boxes[0] - drawn).abs().max() < 3
            seen.add(number)
    assert seen == set(range(NUM))


def test_batches_are_the_same_of_any_number_of_workers_and_after_resuming(made: Path) -> None:
    here, there = batches(made), batches(made, num_workers=2)
    assert all(same(one, other) for one, other in zip(here, there, strict=True))
    train = pcr.open(made, fields=ALL, transform=CROP)
    loader = train.loader(batch_size=8, seed=3, num_workers=0)
    next(iter(loader))
    again = train.loader(batch_size=8, seed=3, num_workers=1)
    again.load_state_dict(loader.state_dict())
    with again:
        assert all(same(one, other) for one, other in zip(here[1:], again, strict=True))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_a_dataset_gives_the_same_by_index_and_to_torch_s_loader(made: Path) -> None:
    train = pcr.open(made, "group_2", fields=ALL)
    image, target = train[6]
    assert image.shape == (*drawn_mask(6).shape, 3)
    assert isinstance(target["mask"], tv_tensors.Mask) and (target["mask"].numpy() == drawn_mask(6)).all()
    boxes = target["boxes"]
    assert isinstance(boxes, tv_tensors.BoundingBoxes) and boxes.canvas_size == image.shape[:2]
    assert [int(number) for number in boxes[0]] == eval(fields_of(6)["boxes"])[0][:4]
    assert target["label"] == 0 and target["meta"]["number"] == 6
    again = pickle.loads(pickle.dumps(train))
    assert again[6][1]["caption"] == target["caption"]
    cropped = pcr.open(made, fields=["boxes", "mask"], transform=CROP, seed=1)
    some = DataLoader(cropped, batch_size=11, num_workers=1, collate_fn=cropped.collate)
    for images, targets in some:
        assert images.shape == (11, 3, 48, 48) and targets["mask"].shape == (11, 48, 48)
        assert len(targets["boxes"]) == 11 and targets["label"].dtype == torch.int64
        light = images[:, 0] > 125
        assert (light == targets["mask"].bool()).float().mean() > 0.97
    plain = pcr.open(made, transform=v2.CenterCrop(32))
    images, labels = plain.collate([plain[0], plain[1]])
    assert images.shape == (2, 3, 32, 32) and labels.tolist() == [0, 1]


@pytest.mark.parametrize("fields", [[], ["mask"], ["caption", "meta"]])
def test_no_byte_is_read_of_what_was_not_asked_for(made: Path, fields: list[str]) -> None:
    records = RecordSet(LocalStorage(made), "pcr")
    wanted = sum(records.index.prefix_bytes(record, 2) for record in range(6))
    if fields:
        beside = RecordFields(records, fields)
        wanted += sum(beside.num_bytes(record) for record in range(6))
    train = pcr.open(made, "group_2", fields=fields, transform=v2.CenterCrop(32))
    before = train.records.storage.counts().bytes_read
    loader = train.loader(batch_size=8, num_workers=0)
    num_bytes = sum(batch.record_bytes for batch in loader._loader.batches(0, 0, 1))
    assert num_bytes == wanted
    assert train.records.storage.counts().bytes_read in (before, before + wanted)  # only some storages count


def test_a_loader_holds_room_for_fields(made: Path) -> None:
    plain, beside = (pcr.open(made, fields=fields, transform=CROP) for fields in ([], ALL))
    sizes = [data.loader(batch_size=8)._loader.max_held_bytes() for data in (plain, beside)]
    assert sizes[1] > sizes[0]


def test_own_crops_leave_masks_and_boxes_to_transforms(made: Path) -> None:
    for fields in (["mask"], ["caption", "boxes"]):
        with pytest.raises(ConfigError, match=r"image_size crops only the image. .* give pcr_exp.open\("):
            pcr.open(made, fields=fields).loader(batch_size=4, image_size=32)
    train = pcr.open(made, fields=["caption", "meta", "pose"])
    for num_workers in (0, 1):
        with train.loader(batch_size=4, image_size=32, num_workers=num_workers) as loader:
            images, target = next(iter(loader))
        assert images.shape == (4, 32, 32, 3) and target["pose"].shape == (4, 2, 3)
        assert target["caption"] == [f"Bild {meta['number']}, schön" for meta in target["meta"]]


@pytest.mark.parametrize(
    "transform",
    [old_transforms.CenterCrop(32), torch.nn.Sequential(v2.CenterCrop(32)), torch.nn.Sequential()],
)
def test_a_transform_of_images_alone_is_refused(made: Path, transform: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"takes only an image; with fields, wanted a transform of torchvision"
    ):
        pcr.open(made, fields=["mask"], transform=transform)
    opened = pcr.open(made, fields=["mask"])
    with pytest.raises(ConfigError, match=r"takes only an image"):
        opened.loader(batch_size=4, transform=transform)


def test_a_function_of_both_is_welcome_and_one_that_gives_less_is_told(made: Path) -> None:
    def light_only(image: np.ndarray, fields: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        return image[:32, :32], {"mask": fields["mask"][:32, :32], "sum": int(fields["mask"].sum())}

    loader = pcr.open(made, fields=["mask"], transform=light_only).loader(batch_size=4, num_workers=0)
    _, target = next(iter(loader))
    assert target["mask"].shape == (4, 32, 32) and len(target["sum"]) == 4
    loader = pcr.open(made, fields=["mask"], transform=lambda image, _: image).loader(4, num_workers=0)
    with pytest.raises(LoaderError, match=r"gave ndarray for an image and fields \(mask\); wanted both"):
        next(iter(loader))
    loader = pcr.open(
        made, fields=["mask"], transform=lambda image, fields: (image[:32, :32], fields)
    ).loader(8, num_workers=0)
    with pytest.raises(
        LoaderError, match=r"field mask: a batch cannot stack torch.uint8 \[.*\] and .*\. End the transform"
    ):
        next(iter(loader))
    with pytest.raises(LoaderError, match=r"image 1 of a batch has the fields b, but its first image has a"):
        collate_fields([{"a": 1}, {"b": 1}], {})


def test_fields_that_are_not_there_are_named(made: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"the records of drawn/train have no field 'depth'; they have boxes, caption"
    ):
        pcr.open(made, fields=["depth"])
    with pytest.raises(ConfigError, match=r"fields='mask': wanted a list of names: \['mask'\]"):
        pcr.open(made, fields="mask")
    shutil.copytree(made, tmp_path / "train")
    (tmp_path / "train/pcr/record-000003.fields").unlink()
    pcr.open(tmp_path / "train")
    with pytest.raises(RecordError, match=r"record-000003\.fields does not exist, but the index next to it"):
        pcr.open(tmp_path / "train", fields=["mask"])


def test_a_damaged_field_ends_a_loader_or_its_image_is_replaced(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "train")
    records = RecordSet(LocalStorage(tmp_path / "train"), "pcr")
    entry = records.index.records[1].fields
    assert entry is not None
    path = tmp_path / "train/pcr" / entry.file
    data = bytearray(path.read_bytes())
    data[entry.group_ends[2] - 1] ^= 1  # the mask of image 7
    path.write_bytes(data)
    train = pcr.open(tmp_path / "train", fields=["mask", "meta"], transform=CROP)
    with pytest.raises(RecordError, match="damaged"):
        list(train.loader(batch_size=8, num_workers=0))
    loader = train.loader(batch_size=8, num_workers=0, on_corrupt="replace")
    numbers = []
    for images, target in loader:
        light = images[:, 0] > 125
        assert (light == target["mask"].bool()).float().mean() > 0.97
        numbers += [meta["number"] for meta in target["meta"]]
    assert sorted(set(range(NUM)) - set(numbers)) == [7] and len(numbers) == NUM


def test_fields_come_whole_through_a_cache(made: Path) -> None:
    """The second epoch reads no image bytes again, and all values equal those without a cache."""
    counting = CountingStorage(LocalStorage(made))
    cached = RecordSet(CachedStorage(counting, MemoryCache(2**24)), "pcr")
    found = []
    for records in (RecordSet(LocalStorage(made), "pcr"), cached):
        loader = RecordLoader(
            records,
            StaticScan(2),
            LoaderConfig(num_workers=0, lanes=2),
            transform=WholeImageTransform(CROP),
            label="class",
            batch_size=8,
            seed=3,
            shuffle=True,
            fields=RecordFields(records, ["mask", "caption"]),
        )
        with loader:
            read_bytes = []
            for epoch in (0, 1):
                before = counting.bytes_read
                found.append(list(loader.batches(epoch, 0, epoch + 1)))
                read_bytes.append(counting.bytes_read - before)
    for plain, through in zip(found[0] + found[1], found[2] + found[3], strict=True):
        assert torch.equal(plain.images, through.images)
        assert torch.equal(plain.fields["mask"], through.fields["mask"])
        assert plain.fields["caption"] == through.fields["caption"]
    fields = RecordFields(cached, ["mask", "caption"])
    of_fields = sum(map(fields.num_bytes, range(len(cached.index.records))))
    images = cached.index.epoch_bytes(2)
    assert read_bytes[0] >= images and read_bytes[1] <= of_fields


def test_an_echo_gives_images_alone(made: Path) -> None:
    records = RecordSet(LocalStorage(made), "pcr")
    with pytest.raises(ConfigError, match="echo with fields"):
        RecordLoader(
            records,
            StaticScan(2),
            LoaderConfig(num_workers=0),
            transform=WholeImageTransform(CROP),
            label="class",
            batch_size=4,
            seed=0,
            shuffle=True,
            fields=RecordFields(records, ["mask"]),
            echo=EchoConfig(),
        )


def test_photographs_with_masks_are_prepared_and_opened_in_one_line(tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "in", NUM)
    with (tmp_path / "in/lesions.csv").open("w", newline="") as file:
        rows = [[s.id, s.labels["class"], s.id.replace("jpg", "png"), f"caption {s.id}"] for s in samples]
        csv.writer(file).writerows([["path", "label", "mask", "text"], *rows])
    found = pcr.open(tmp_path / "in/lesions.csv", prepare=tmp_path / "records", fields=["mask", "text"])
    image, target = found[0]
    assert target["mask"].shape == image.shape[:2] and target["text"] == f"caption {found.id(0)}"
    with pytest.raises(ConfigError, match=r"records.fields=\['depth'\]: .* has no field 'depth'"):
        pcr.open(tmp_path / "in/lesions.csv", prepare=tmp_path / "records", fields=["depth"])


def test_fields_of_another_record_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encode_fields(write_samples(tmp_path / "in", 8), tmp_path / "train", fields={"pose": "array"})
    one, other = (tmp_path / f"train/pcr/record-00000{number}.fields" for number in (0, 1))
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)
    loader = pcr.open(tmp_path / "train", fields=["pose"]).loader(4, image_size=32, num_workers=0)
    with pytest.raises(
        RecordError, match=r"record of 00\d\.jpg belong to 00\d\.jpg and others: files were mixed"
    ):
        next(iter(loader))
    options = command_parser().parse_args(["verify", str(tmp_path / "train")])
    assert options.run(options) == 1
    assert (
        capsys.readouterr().out.count("holds fields of different images from those in the record next to it")
        == 2
    )


def test_a_mixture_has_no_fields(made: Path) -> None:
    train = pcr.open(made, fields=["mask"], transform=CROP)
    with pytest.raises(ConfigError, match=r"sources\['a'\]=\['mask'\]: wanted no fields"):
        pcr.mix({"a": (train, 0.5), "b": (pcr.open(made), 0.5)})
