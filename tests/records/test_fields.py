"""Fields are bytes stored with images, in a file next to each record, and read only on request."""

from __future__ import annotations

import json
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from field_samples import CLASSES, KINDS, encode_fields, fields_of, npy, png, write_samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from records_encoding import read_tree
from test_format_page import read_record

from pcr_exp.cli.records import command_parser
from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.sample import Dataset, Sample, keep_fields
from pcr_exp.errors import ConfigError, DatasetError, ImageError, RecordError
from pcr_exp.records import index as index_module
from pcr_exp.records.field_values import parse_field
from pcr_exp.records.fields import RecordFields, field_value, fields_id
from pcr_exp.records.index import parse_index
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.strict_json import UnfitError
from pcr_exp.records.writer import SplitWriter, StoredImage
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.protocol import Range, Wrapped

NUM = 10


class Spy(Wrapped):
    """Notes every range that is read."""

    def __init__(self, inner: LocalStorage) -> None:
        super().__init__(inner)
        self.ranges: list[Range] = []

    def read(self, path: str, offset: int, length: int) -> bytes:
        self.ranges.append((path, offset, length))
        return super().read(path, offset, length)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A split of three records with fields."""
    folder = tmp_path_factory.mktemp("fields")
    encode_fields(write_samples(folder / "in", NUM), folder / "train")
    return folder / "train"


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "train")
    return tmp_path / "train"


def run(*arguments: str) -> int:
    options = command_parser().parse_args(arguments)
    return int(options.run(options))


@pytest.mark.parametrize("encoding", ["pcr", "baseline"])
def test_fields_are_stored_byte_for_byte_and_read_in_any_choice(made: Path, encoding: str) -> None:
    records = RecordSet(LocalStorage(made), encoding)
    assert records.index.fields == KINDS
    for names in (list(KINDS), ["mask"], ["pose", "boxes"], ["meta", "caption"]):
        fields = RecordFields(records, names)
        found = [sample for record in range(3) for sample in fields.read(record).samples]
        wanted = [{name: fields_of(i)[name] for name in names} for i in range(NUM)]
        assert [{name: bytes(data) for name, data in sample.items()} for sample in found] == wanted
        one_by_one = [sample for record in (2, 0) for sample in fields.read_several(record, [1, 0])]
        assert [bytes(sample[names[0]]) for sample in one_by_one] == [
            wanted[i][names[0]] for i in (9, 8, 1, 0)
        ]


def test_the_page_is_enough_to_read_them(made: Path) -> None:
    index = json.loads((made / "pcr/index.json").read_text())
    assert index["minor"] == 1 and index["fields"] == KINDS
    for number, entry in enumerate(index["records"]):
        beside = entry["fields"]
        header, fields, header_bytes, ends = read_record((made / "pcr" / beside["file"]).read_bytes())
        assert beside["file"] == f"record-{number:06}.fields"
        assert (header_bytes, ends) == (beside["header_bytes"], beside["group_ends"])
        kinds = "".join(f"-{name}.{kind}" for name, kind in sorted(index["fields"].items()))
        assert header["scans"] == f"fields{kinds}" == fields_id(KINDS)
        first = 4 * number
        assert header["ids"] == [f"{i:03}.jpg" for i in range(first, first + beside["num_samples"])]
        for name, pieces in zip(sorted(index["fields"]), fields, strict=True):
            assert pieces == [fields_of(first + i)[name] for i in range(beside["num_samples"])]


def test_a_field_is_one_range_read_and_images_read_nothing_of_it(made: Path) -> None:
    spy = Spy(LocalStorage(made))
    records = RecordSet(spy, "pcr")
    entry = records.index.records[1].fields
    assert entry is not None
    for names, start, group in (
        (["mask"], 2, 3),
        (["meta", "pose", "mask"], 2, 5),
        (["boxes", "caption"], 0, 2),
    ):
        fields = RecordFields(records, names)
        spy.ranges.clear()
        beside = fields.read(1)
        first = entry.group_ends[start - 1] if start else 0
        assert spy.ranges == [("pcr/record-000001.fields", first, entry.group_ends[group - 1] - first)]
        assert beside.num_bytes == spy.ranges[0][2] == fields.num_bytes(1)
    spy.ranges.clear()
    for group in range(1, 11):
        records.read_prefix(1, group)
    assert [path for path, *_ in spy.ranges] == ["pcr/record-000001.pcr"] * 10
    assert [size for *_, size in spy.ranges] == list(records.index.records[1].group_ends)


def test_images_are_what_they_are_without_fields(made: Path, tmp_path: Path) -> None:
    samples = [replace(sample, fields={}) for sample in write_samples(tmp_path / "in", NUM)]
    encode_fields(samples, tmp_path / "train", fields=None)
    plain, with_fields = (RecordSet(LocalStorage(folder), "pcr") for folder in (tmp_path / "train", made))
    assert plain.index.images == with_fields.index.images
    assert plain.index.fingerprint != with_fields.index.fingerprint
    assert json.loads((tmp_path / "train/pcr/index.json").read_text())["minor"] == 0
    assert not list(tmp_path.glob("train/*/*.fields"))
    for record in range(3):
        ours, theirs = (records.read_prefix(record, 10) for records in (plain, with_fields))
        assert [ours.encoded(i) for i in range(len(ours))] == [theirs.encoded(i) for i in range(len(theirs))]
    with pytest.raises(
        ConfigError, match=r"fields=\['mask'\]: .* no field 'mask'; they have none. Prepare them with"
    ):
        RecordFields(plain, ["mask"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes_of_any_samples_come_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    names = data.draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True))
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries({name: st.binary(max_size=60) for name in names}), min_size=1, max_size=6
        )
    )
    folder = tmp_path_factory.mktemp("any")
    kinds = dict.fromkeys(names, "text")
    writer = SplitWriter(folder, "any", "train", CLASSES, "ab", "cd", fields=kinds)
    loaded = [
        (Sample(f"{i}", folder / f"{i}", {"class": 0}), StoredImage(b"x", [b"y"] * 10, False, fields=row))
        for i, row in enumerate(rows)
    ]
    for encoding in ("pcr", "baseline"):
        (folder / encoding).mkdir()
    writer.finish([writer.write_record(0, loaded, "0" * 16)])
    records = RecordSet(LocalStorage(folder), "pcr")
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    found = RecordFields(records, chosen).read(0)
    assert [{name: bytes(one) for name, one in sample.items()} for sample in found.samples] == [
        {name: row[name] for name in chosen} for row in rows
    ]


def test_damage_at_every_byte_is_found(copied: Path) -> None:
    records = RecordSet(LocalStorage(copied), "pcr")
    entry = records.index.records[2].fields  # the smallest
    assert entry is not None
    path = copied / "pcr" / entry.file
    whole = path.read_bytes()
    every, last = RecordFields(records, list(KINDS)), RecordFields(records, ["pose"])
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(RecordError):
            every.read(2)
        if place >= entry.group_ends[3]:
            with pytest.raises(RecordError, match=r"group 5 of record pcr/record-000002\.fields"):
                last.read(2)
        else:
            last.read(2)
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(RecordError, match=r"record-000002\.fields is cut short"):
            every.read(2)


def test_one_damaged_field_is_named_with_its_image(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = RecordSet(LocalStorage(copied), "pcr")
    entry = records.index.records[1].fields
    assert entry is not None
    path = copied / "pcr" / entry.file
    whole = bytearray(path.read_bytes())
    whole[entry.group_ends[2] - 1] ^= 1  # the last byte of the last mask
    path.write_bytes(whole)
    fields = RecordFields(records, ["mask"])
    with pytest.raises(RecordError, match=r"group 3 of record pcr/record-000001\.fields is damaged"):
        fields.read(1)
    beside, damaged = fields.read_damaged(1)
    assert damaged == {3} and bytes(beside.samples[2]["mask"]) == fields_of(6)["mask"]
    with pytest.raises(RecordError, match="damaged"):
        fields.read_several(1, [3])
    assert bytes(fields.read_several(1, [2])[0]["mask"]) == fields_of(6)["mask"]
    assert run("verify", str(copied)) == 1
    said = capsys.readouterr().out
    assert "damaged: pcr/record-000001.fields: image 007.jpg, field mask" in said
    assert "5 of 6 records are whole" in said


def test_inspect_verify_and_extract_know_fields(
    copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("inspect", str(copied)) == run("verify", str(copied)) == 0
    said = capsys.readouterr().out
    entries = [record.fields for record in RecordSet(LocalStorage(copied), "pcr").index.records]
    mib = sum(entry.group_ends[2] - entry.group_ends[1] for entry in entries if entry) / 2**20
    assert f"  field mask (mask): {mib:.2f} MiB" in said and "  field caption (text): " in said
    total = sum(path.stat().st_size for suffix in ("pcr", "fields") for path in copied.glob(f"*/*.{suffix}"))
    assert f"6 of 6 records are whole ({total / 2**20:.1f} MiB)" in said
    for name, suffix in (("mask", ".png"), ("boxes", ".json"), ("caption", ".txt"), ("pose", ".npy")):
        assert run("extract", str(copied), "006.jpg", "--field", name) == 0
        assert (tmp_path / f"006-{name}{suffix}").read_bytes() == fields_of(6)[name]
    assert run("extract", str(copied), "6", "--field", "mask", "-o", "006-mask.png") == 1, "it is there"
    with pytest.raises(ConfigError, match="no field 'depth'; they have boxes, caption, mask, meta, pose"):
        run("extract", str(copied), "6", "--field", "depth")
    (copied / "pcr/record-000009.fields").write_bytes(b"")
    (copied / "pcr/record-000000.fields").unlink()
    assert run("verify", str(copied)) == 1
    said = capsys.readouterr().out
    assert "not listed: pcr/record-000009.fields" in said and "damaged: pcr/record-000000.fields" in said


def test_an_older_reader_goes_on_reading_images(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.loads((made / "pcr/index.json").read_text())
    # Unknown keys stand for fields, as a reader that does not know fields sees them.
    content["what_is_that"] = content.pop("fields")
    for entry in content["records"]:
        entry["what_is_that"] = entry.pop("fields")
    data = sealed(content)
    with pytest.raises(RecordError, match="what_is_that"):
        parse_index(data, "it")  # minor 1 is known, so unknown keys are refused
    monkeypatch.setattr(index_module, "MINOR_WITH_FIELDS", 0)
    index = parse_index(data, "it")
    assert not index.fields
    older = RecordSet(LocalStorage(made), "pcr", index=index)
    records = RecordSet(LocalStorage(made), "pcr")
    assert older.read_prefix(2, 4).encoded(1) == records.read_prefix(2, 4).encoded(1)


def sealed(content: dict[str, Any]) -> bytes:
    """Return an index with its correct checksum."""
    bare = {name: content[name] for name in content if name not in ("format", "version", "checksum")}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"))
    return json.dumps(content | {"checksum": xxhash.xxh3_64_hexdigest(text.encode())}).encode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda records: records[1].pop("fields"), r"records\[1\]\.fields is missing"),
        (
            lambda records: records[1]["fields"].update(num_samples=3),
            r"records\[1\]\.fields\.num_samples is 3, wanted 4",
        ),
        (
            lambda records: records[1]["fields"]["group_ends"].pop(),
            r"records\[1\]\.fields\.group_ends has 4 offsets, wanted 5 \(num_groups\)",
        ),
        (
            lambda records: records[1]["fields"].update(file="record-000000.fields"),
            "records name a file twice",
        ),
        (lambda records: records[1]["fields"].update(file="../x"), "wanted a bare name"),
    ],
)
def test_an_index_whose_fields_cannot_be_is_refused(
    made: Path, change: Callable[[Any], object], message: str
) -> None:
    content = json.loads((made / "pcr/index.json").read_text())
    change(content["records"])
    with pytest.raises(RecordError, match=message):
        parse_index(sealed(content), "it")


def test_a_large_index_with_fields_has_no_table(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pcr_exp.records import index_table

    monkeypatch.setattr(index_table, "LARGE_BYTES", 1)
    index = RecordSet(LocalStorage(made), "pcr").index
    index_table.write_index(tmp_path, index)
    assert [path.name for path in tmp_path.iterdir()] == ["index.json"]
    assert parse_index((tmp_path / "index.json").read_bytes(), "it").fields == KINDS


@pytest.mark.parametrize("stop_at", [3, 6, 10])
def test_an_encode_that_was_stopped_ends_with_the_same_bytes(
    made: Path, tmp_path: Path, stop_at: int
) -> None:
    samples = write_samples(tmp_path / "in", NUM)

    def stop(done: int, _: int) -> None:
        if done == stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_fields(samples, tmp_path / "train", progress=stop)
    for left in ("pcr/record-000001.fields", "pcr/record-000002.fields"):
        (tmp_path / "train" / left).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "train" / left).write_bytes(b"cut off")
    encode_fields(samples, tmp_path / "train")
    names = {name for name in read_tree(made) if not name.startswith(".")}
    assert {name: read_tree(made)[name] for name in names} == {
        name: data for name, data in read_tree(tmp_path / "train").items() if not name.startswith(".")
    }


UNFIT = {
    "mask_size": (
        "mask",
        png(np.zeros((5, 7), np.uint8)),
        r"mask of 7 x 5 px, wanted 72 x 72, the size of its image",
    ),
    "mask_rgb": ("mask", png(np.zeros((72, 72, 3), np.uint8)), r"PNG file of mode RGB, wanted one number"),
    "mask_none": ("mask", b"", r"not a mask in a PNG file"),
    "mask_cut": ("mask", fields_of(1)["mask"][:90], r"not a mask in a PNG file"),
    "boxes_text": ("boxes", b"here", r"not JSON"),
    "boxes_three": ("boxes", b"[[1, 2, 3]]", r"not a list of boxes, wanted a list"),
    "boxes_mixed": (
        "boxes",
        b"[[1, 2, 3, 4], [1, 2, 3, 4, 0]]",
        r"some boxes have a class and some have none",
    ),
    "boxes_turned": ("boxes", b"[[3, 2, 1, 4]]", r"has a box \[3, 2, 1, 4\], wanted"),
    "boxes_large": ("boxes", b"[[1, 2, 3, 1e99]]", r"has a box \[1, 2, 3, 1e"),
    "boxes_class": ("boxes", b"[[1, 2, 3, 4, 1.5]]", r"has a box"),
    "caption": ("caption", b"\xff", r"not UTF-8 text"),
    "meta": ("meta", b'{"a": NaN}', r"NaN is not a number"),
    "array_objects": ("pose", b"\x93NUMPY\x01\x00", r"not an array as written by numpy\.save"),
    "array_texts": ("pose", npy(np.array(["a"])), r"an array of <U1, wanted numbers"),
    "array_claim": ("pose", npy(np.zeros(9))[:-8], r"an array of shape \[9\], but holds 8 numbers"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_field_that_is_not_of_its_kind_is_refused_by_name(tmp_path: Path, case: str) -> None:
    name, data, message = UNFIT[case]
    samples = write_samples(tmp_path / "in", 5)
    samples[1] = replace(samples[1], fields=dict(samples[1].fields) | {name: data})
    with pytest.raises(ImageError, match=rf"001\.jpg: its field {name} cannot be stored: .*{message}"):
        encode_fields(samples, tmp_path / "train")
    report = encode_fields(samples, tmp_path / "train", on_error="skip")
    assert (report.num_images, report.num_rejected) == (4, 1)
    assert re.search(message, (tmp_path / "train/rejected.csv").read_text().replace('""', '"'))
    records = RecordSet(LocalStorage(tmp_path / "train"), "baseline")
    found = RecordFields(records, ["caption"]).read(0).samples
    assert [bytes(one["caption"]) for one in found] == [fields_of(i)["caption"] for i in (0, 2, 3)]


def test_a_field_whose_file_is_gone_is_refused(tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "in", 5)
    (tmp_path / "in/001.png").unlink()
    with pytest.raises(ImageError, match=r"001\.jpg: its field mask cannot be read: No such file"):
        encode_fields(samples, tmp_path / "train")


def test_values_are_what_their_bytes_say() -> None:
    fields = fields_of(5)
    boxes = parse_field("boxes", fields["boxes"], None)
    assert (
        boxes.corners.dtype == np.float32 and boxes.corners.shape == (1, 4) and boxes.labels.tolist() == [1]
    )
    assert parse_field("boxes", b"", None).corners.shape == (0, 4)
    assert parse_field("boxes", b"[[0, 1.5, 2, 3]]", None).labels.tolist() == [0]
    assert parse_field("text", b"", None) == ""
    assert parse_field("json", fields["meta"], None) == {"number": 5, "none": None}
    deep = parse_field("mask", png(np.array([[40_000, 1]], dtype=np.uint16)), (2, 1))
    assert deep.dtype == np.int32 and deep.tolist() == [[40_000, 1]]
    assert parse_field("mask", png(np.array([[True, False]])), (2, 1)).tolist() == [[1, 0]]
    for depth, packed in ((2, 0b00011011), (4, 0x01)):  # Pillow stretches these to 255
        header = struct.pack(">IIBBBBB", 2, 1, depth, 0, 0, 0, 0)
        parts = (b"IHDR", header), (b"IDAT", zlib.compress(bytes([0, packed]))), (b"IEND", b"")
        chunks = [
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in parts
        ]
        mask = parse_field("mask", b"\x89PNG\r\n\x1a\n" + b"".join(chunks), (2, 1))
        assert mask.dtype == np.uint8 and mask.tolist() == [[0, 1]]
    for values in (np.arange(6.0).reshape(2, 3, order="F"), np.array([1, 2], ">i2"), np.array(True)):
        found = parse_field("array", npy(values), None)
        assert (
            found.dtype == values.dtype.newbyteorder("=")
            and (found == values).all()
            and found.flags.writeable
        )
    with pytest.raises(UnfitError, match="version"):
        parse_field("array", npy(np.zeros(1)).replace(b"\x01\x00", b"\x09\x00", 1), None)
    with pytest.raises(RecordError, match="field smell of x cannot be used: it is of kind 'smell'"):
        field_value("smell", b"", (1, 1), "field smell of x")


def test_which_fields_are_kept_of_a_dataset(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, 3)
    dataset = Dataset("drawn", {"train": samples, "tune": [], "val": []}, CLASSES, fields=dict(KINDS))
    kept = keep_fields(dataset, ["mask", "boxes"])
    assert kept.fields == {"boxes": "boxes", "mask": "mask"}
    assert all(list(sample.fields) == ["boxes", "mask"] for sample in kept.train)
    assert keep_fields(dataset, []).fields == {} == keep_fields(dataset, []).train[0].fields
    with pytest.raises(
        ConfigError, match=r"records.fields=\['depth'\]: drawn has no field 'depth'; it has boxes"
    ):
        keep_fields(dataset, ["depth"])
    with pytest.raises(DatasetError, match="the field mask has the kind 'png'; wanted array, boxes"):
        keep_fields(replace(dataset, fields={"mask": "png"}), ["mask"])
    lacking = replace(samples[1], fields={})
    with pytest.raises(DatasetError, match=r"001\.jpg has no field 'mask'"):
        keep_fields(replace(dataset, splits={"train": [lacking]}), ["mask"])


@pytest.mark.parametrize(
    "fields", [["Mask"], ["label"], ["mask", "mask"], [f"f{i}" for i in range(9)], ["../x"]]
)
def test_names_that_cannot_be_are_refused(fields: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"records\.fields"):
        RecordsConfig(fields=fields)


def flipped(data: bytes) -> Iterator[bytes]:
    yield from (data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :] for place in range(len(data)))


@pytest.mark.parametrize("kind", sorted({"mask", "array", "boxes", "json", "text"}))
def test_no_bytes_are_more_than_unfit(kind: str) -> None:
    data = {"mask": "mask", "array": "pose", "boxes": "boxes", "json": "meta", "text": "caption"}[kind]
    for broken in flipped(fields_of(1)[data]):
        try:
            parse_field(kind, broken, None)
        except UnfitError:
            continue
