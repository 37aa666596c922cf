"""Targets for hostile input. Each takes a source of randomness and does what a program would do.

Checksums are correct, except in `record`, so that the code behind them is reached.
"""

from __future__ import annotations

import csv
import functools
import json
import re
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import xxhash
from fuzz_mutations import mutate_bytes, mutate_jpeg, mutate_json, mutate_text
from records_encoding import encode, write_images
from records_pictures import exif, photo, to_jpeg

from pcr_exp.config.loader import DECODE_MODES, StorageConfig
from pcr_exp.errors import PcrExpError
from pcr_exp.images.decode import decode, open_decoder
from pcr_exp.images.jpeg import group_pieces, join_pieces, read_header, read_orientation, split_scans
from pcr_exp.images.transcode import to_progressive
from pcr_exp.records.index import parse_index
from pcr_exp.records.markers import read_markers, read_rejected
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import SingleImages
from pcr_exp.records.sources import read_images, read_source
from pcr_exp.storage.local import LocalStorage
from pcr_exp.storage.protocol import Storage
from pcr_exp.storage.throttle import Throttle, ThrottledStorage

MAX_PIXELS = 2**18
FIELDS = (
    *(
        "dataset",
        "split",
        "encoding",
        "images",
        "fingerprint",
        "scans",
        "num_groups",
        "num_samples",
        "ids",
        "labels",
    ),
    *("classes", "records", "file", "header_bytes", "group_ends", "minor"),
)


@functools.cache
def pictures() -> dict[str, bytes]:
    """Return small JPEG files of many kinds."""
    image = photo(64, 48)
    kinds = {
        "420": to_jpeg(image, subsampling=2),
        "444": to_jpeg(image, subsampling=0),
        "grey": to_jpeg(image.convert("L")),
        "cmyk": to_jpeg(image.convert("CMYK")),
        "rgb": to_jpeg(image, keep_rgb=True),
        "restarts": to_jpeg(image, restart_marker_blocks=2),
        "exif": to_jpeg(image, exif=exif(6, to_jpeg(photo(8, 8)))),
        "odd": to_jpeg(photo(61, 37), progressive=True),
    }
    progressive = {f"{name}_progressive": to_progressive(jpeg) for name, jpeg in kinds.items()}
    return kinds | progressive


@functools.cache
def folder() -> Path:
    """Return a folder of intact records, which exists as long as the process."""
    keep = tempfile.TemporaryDirectory()
    root = Path(keep.name)
    folder.keep = keep  # type: ignore[attr-defined]
    samples = write_images(root / "in", dict(list(pictures().items())[:6]))
    encode(samples, root / "v2", images_per_record=3)
    return root


class Files(Storage):
    """The files of a folder, some of them replaced."""

    def __init__(self, root: Path, replaced: dict[str, bytes]) -> None:
        self.root, self.replaced = root, replaced

    def size(self, path: str) -> int:
        return len(self.replaced[path]) if path in self.replaced else LocalStorage(self.root).size(path)

    def read(self, path: str, offset: int, length: int) -> bytes:
        if path in self.replaced:
            return self.replaced[path][offset : offset + length]
        return LocalStorage(self.root).read(path, offset, length)


def resealed_index(document: object, rng: Random) -> bytes:
    """Return `index.json` for a document, with its checksum recomputed."""
    if not isinstance(document, dict):
        return json.dumps(document).encode()
    outer = {name: document.pop(name) for name in ("format", "version", "checksum") if name in document}
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    outer["checksum"] = xxhash.xxh3_64_hexdigest(canonical)
    text = json.dumps(outer | document).encode()
    return mutate_text(text, rng) if rng.random() < 0.1 else text


def resealed_header(text: bytes, version: int) -> bytes:
    """Return a record's header with this text, with its checksum recomputed."""
    preamble = struct.pack("<8sII", b"\x89PCR\r\n\x1a\n", version, len(text))
    return preamble + struct.pack("<Q", xxhash.xxh3_64_intdigest(preamble + text)) + text


def read_all(records: RecordSet, rng: Random) -> None:
    """Read what training reads (prefixes, an extension, JPEG files, pixels), and single images."""
    index = records.index
    for record in range(min(2, len(index.records))):
        group = rng.randint(1, index.num_groups)
        prefix = records.read_prefix(record, group)
        if group < index.num_groups:
            prefix = prefix.extended(records.read_extension(record, group, index.num_groups))
        decoder = open_decoder(rng.choice(DECODE_MODES), index.encoding, MAX_PIXELS)
        for i in range(min(2, len(prefix))):
            decoder(prefix.encoded(i), prefix.group, f"sample {i}").part(0, 0, 1, 1)
        SingleImages(records).read(record, rng.randrange(len(prefix)), group)


def checked(run: Callable[[], object], names: str) -> str:
    """Run it. Return "accepted", or "refused" if it raises our error, whose message must match `names`."""
    try:
        run()
    except PcrExpError as error:
        message = str(error)
        assert re.search(names, message), f"{message!r} does not name {names}"
        if "cannot be used: " in message:
            rest = message.split("cannot be used: ")[1]
            assert any(field in rest for field in (*FIELDS, "it is", "it has", "is not an allowed key")), (
                message
            )
        return "refused"
    return "accepted"


def index(rng: Random) -> str:
    """Damage `index.json`, and read with it."""
    encoding = rng.choice(["pcr", "baseline"])
    path = f"v2/{encoding}/index.json"
    data = resealed_index(mutate_json(json.loads((folder() / path).read_bytes()), rng), rng)
    storage = Files(folder(), {path: data})
    return checked(
        lambda: read_all(RecordSet(storage, f"v2/{encoding}", max_pixels=MAX_PIXELS), rng),
        rf"v2/{encoding}/|sample \d",
    )


def throttled_index(rng: Random) -> str:
    """Read with a damaged index from slow storage; nothing waits for bytes that do not exist."""
    path = "v2/pcr/index.json"
    document = json.loads((folder() / path).read_bytes())
    document["records"][0]["group_ends"][-1] = rng.choice([2**31, 2**40, 2**47])
    storage = Files(folder(), {path: resealed_index(document, Random(1))})
    slow = ThrottledStorage(storage, Throttle.create(StorageConfig(name="slow", bandwidth_mib_per_s=8.0)))
    return checked(lambda: read_all(RecordSet(slow, "v2/pcr"), rng), "v2/pcr/")


def header(rng: Random) -> str:
    """Damage a record's header."""
    path = "v2/pcr/record-000000.pcr"
    data = (folder() / path).read_bytes()
    (length,) = struct.unpack_from("<I", data, 12)
    text = data[24 : 24 + length]
    if rng.random() < 0.8:
        text = json.dumps(mutate_json(json.loads(text), rng), separators=(",", ":")).encode()
    else:
        text = mutate_text(text, rng)
    changed = resealed_header(text, rng.choice([1, 2, 2, 2, 3, 2**32 - 1])) + data[24 + length :]
    index_path = "v2/pcr/index.json"
    document = json.loads((folder() / index_path).read_bytes())
    entry, moved = document["records"][0], len(text) - length
    entry["group_ends"] = [end + moved for end in entry["group_ends"]]
    entry["header_bytes"] += moved
    storage = Files(folder(), {path: changed, index_path: resealed_index(document, Random(1))})
    return checked(lambda: read_all(RecordSet(storage, "v2/pcr"), rng), r"v2/pcr/|sample \d")


def groups(rng: Random) -> str:
    """Damage lengths, checksums or pieces of a group, under a correct checksum."""
    path = "v2/pcr/record-000000.pcr"
    data = bytearray((folder() / path).read_bytes())
    entry = parse_index((folder() / "v2/pcr/index.json").read_bytes(), "it").records[0]
    number = rng.randrange(10)
    start, end = (entry.header_bytes, *entry.group_ends)[number : number + 2]
    table = 12 * entry.num_samples
    part = rng.randrange(3)
    if part == 0:  # lengths
        data[start : start + 12] = struct.pack(
            "<3I", *(rng.choice([0, 1, 2**32 - 1, rng.randrange(9999)]) for _ in range(3))
        )
    elif part == 1:
        data[start : start + table] = mutate_bytes(bytes(data[start : start + table]), rng)[:table].ljust(
            table, b"\0"
        )
    else:
        content = bytes(data[start + table + 8 : end])
        data[start + table + 8 : end] = mutate_bytes(content, rng, content)[: len(content)].ljust(
            len(content), b"\0"
        )
    sealed = bytes(data[start : start + table]) + bytes(data[start + table + 8 : end])
    data[start + table : start + table + 8] = struct.pack("<Q", xxhash.xxh3_64_intdigest(sealed))
    storage = Files(folder(), {path: bytes(data)})
    return checked(
        lambda: read_all(RecordSet(storage, "v2/pcr", max_pixels=MAX_PIXELS), rng), r"v2/pcr/|sample \d"
    )


def record(rng: Random) -> str:
    """Damage a record's bytes as a disk or a network would."""
    path = "v2/pcr/record-000000.pcr"
    data = (folder() / path).read_bytes()
    storage = Files(folder(), {path: mutate_bytes(data, rng, data)})
    return checked(lambda: read_all(RecordSet(storage, "v2/pcr"), rng), "v2/pcr/")


def hostile_jpeg(rng: Random) -> bytes:
    """Return a JPEG file that is damaged in its structure or anywhere."""
    (name, jpeg), other = rng.choice(list(pictures().items())), rng.choice(list(pictures().values()))
    if name.endswith("_progressive"):
        jpeg = join_pieces(split_scans(jpeg)[: rng.randint(1, 10)])
    if rng.random() < 0.7:
        return mutate_jpeg(jpeg, rng, other)
    return mutate_bytes(jpeg, rng, other)


def encoding(rng: Random) -> str:
    """Encode a damaged file: read its header and orientation, transcode it, split its scans."""
    jpeg = hostile_jpeg(rng)

    def run() -> None:
        progressive = to_progressive(jpeg, MAX_PIXELS)
        read_orientation(jpeg)
        assert join_pieces(group_pieces(split_scans(progressive))) == progressive

    checked(lambda: read_header(jpeg), ".")
    checked(lambda: split_scans(jpeg), ".")
    return checked(run, ".")


def decoding(rng: Random) -> str:
    """Decode a record's damaged file with every decoder."""
    jpeg = hostile_jpeg(rng)
    group = rng.randint(1, 10)

    def run(encoding: str, mode: str) -> None:
        source = open_decoder(mode, encoding, MAX_PIXELS)(jpeg, group, "sample 7")
        rows, columns = rng.randint(1, source.height_px), rng.randint(1, source.width_px)
        top, left = rng.randint(0, source.height_px - rows), rng.randint(0, source.width_px - columns)
        source.part(top, left, rows, columns)

    for mode in DECODE_MODES:
        checked(functools.partial(run, "pcr", mode), "^sample 7 ")
    checked(functools.partial(run, "baseline", "scaled"), "^sample 7 ")
    return checked(lambda: decode(jpeg, "sample 7", MAX_PIXELS), "^sample 7 ")


def notes(rng: Random) -> str:
    """Damage the files next to records: markers, rejected images, and the origin of records."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / ".receipts").mkdir()
        ends = {encoding: list(range(100, 1100, 100)) for encoding in ("pcr", "baseline")}
        marker = {
            "fingerprint": "f00d",
            "number": 0,
            "num_samples": 3,
            "group_ends": ends,
            "header_bytes": {"pcr": 50, "baseline": 50},
            "rejected": [["a", "b"]],
            "num_turned": 0,
        }
        text = json.dumps(mutate_json(marker, rng)).encode()
        (place / ".receipts/0.json").write_bytes(text if rng.random() < 0.8 else mutate_text(text, rng))
        source = {"root": "/x", "folders": {"/x": [1, 2]}, "tables": {}, "remarks": ["a"]}
        text = json.dumps(mutate_json(source, rng)).encode()
        (place / "source.json").write_bytes(text if rng.random() < 0.8 else mutate_text(text, rng))
        (place / "source_images.csv.gz").write_bytes(rng.randbytes(rng.randrange(50)))
        rows = mutate_bytes(b'id,reason\na.jpg,"zero-byte, ""file"""\n', rng, b'"' * csv.field_size_limit())
        (place / "rejected.csv").write_bytes(rows)

        def run() -> None:
            read_markers(place, "f00d")
            found = read_source(place)
            if found is not None:
                found.is_unchanged()
            read_images(place)
            read_rejected(place)

        return checked(run, "rejected.csv")


TARGETS = (index, index, header, header, groups, record, encoding, decoding, decoding, notes, throttled_index)
