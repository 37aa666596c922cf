"""Records are written, read and loaded with a codec other than JPEG, without any other change."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pcr_exp.config import components
from pcr_exp.config.components import register
from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import ConfigError, ImageError, RecordError
from pcr_exp.images.codec import GROUP, Buffer, Decoder, ImageCodec, find_codec
from pcr_exp.images.decode import PROGRESSIVE
from pcr_exp.images.decoded import DecodedImage
from pcr_exp.loading.loader import RecordLoader
from pcr_exp.loading.transform import EvalTransform
from pcr_exp.policies.policy import StaticScan
from pcr_exp.records.encode import encode_split
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

SIZE_PX = 8
NUM_IMAGES = 5


class BitPlanes:
    """Stores PNG files as raw pixels: group 1 has size and highest four bits, groups 2 and 3 two each."""

    masks = (0xF0, 0x0C, 0x03)

    def __init__(self, name: str, num_groups: int) -> None:
        self.name, self.num_groups = name, num_groups

    def check_installed(self) -> None: ...

    def check(self, original: bytes, max_pixels: int) -> None:
        with Image.open(io.BytesIO(original)) as image:
            if image.width * image.height > max_pixels:
                raise ImageError("too large")

    def is_turned(self, original: bytes) -> bool:  # noqa: ARG002
        return False

    def encode(self, original: bytes, max_pixels: int) -> bytes:  # noqa: ARG002
        with Image.open(io.BytesIO(original)) as image:
            pixels = np.asarray(image.convert("RGB"))
        height, width = pixels.shape[:2]
        planes = b"".join((pixels & mask).tobytes() for mask in self.masks)
        return bytes([height, width]) + planes

    def split(self, encoded: bytes) -> list[bytes]:
        if self.num_groups == 1:
            return [encoded]
        size = 3 * encoded[0] * encoded[1]
        return [encoded[: size + 2], encoded[size + 2 : 2 * size + 2], encoded[2 * size + 2 :]]

    def join(self, pieces: Sequence[Buffer]) -> Sequence[Buffer]:
        return pieces

    def open_decoder(self, mode: str, max_pixels: int) -> Decoder:  # noqa: ARG002
        def decode(file: Buffer, group: int, name: str) -> DecodedImage:  # noqa: ARG001
            height, width = file[0], file[1]
            planes = np.frombuffer(file, np.uint8, offset=2).reshape(-1, height, width, 3)
            return DecodedImage(planes.sum(axis=0, dtype=np.uint8))

        return decode


@pytest.fixture
def codecs(monkeypatch: pytest.MonkeyPatch) -> dict[str, ImageCodec]:
    monkeypatch.setitem(components._components, GROUP, components._components[GROUP].copy())
    made: dict[str, ImageCodec] = {
        "baseline": BitPlanes("bit-planes-whole", 1),
        "pcr": BitPlanes("bit-planes", 3),
    }
    for codec in made.values():
        register(GROUP, codec.name)(lambda codec=codec: codec)
    return made


@pytest.fixture
def pictures() -> list[np.ndarray]:
    return [
        np.random.default_rng(i).integers(256, size=(SIZE_PX, SIZE_PX, 3), dtype=np.uint8)
        for i in range(NUM_IMAGES)
    ]


@pytest.fixture
def folder(tmp_path: Path, codecs: dict[str, ImageCodec], pictures: list[np.ndarray]) -> Path:
    samples = []
    for i, pixels in enumerate(pictures):
        path = tmp_path / f"{i}.png"
        Image.fromarray(pixels).save(path)
        samples.append(Sample(path.name, path, {"number": i}))
    report = encode_split(
        samples,
        {"number": [str(i) for i in range(NUM_IMAGES)]},
        tmp_path / "records",
        dataset="toy",
        split="train",
        images_per_record=2,
        codecs=codecs,
    )
    assert report.num_images == NUM_IMAGES
    return tmp_path / "records"


def test_records_name_their_codec_and_give_its_files(
    folder: Path, codecs: dict[str, ImageCodec], pictures: list[np.ndarray]
) -> None:
    records = RecordSet(LocalStorage(folder), "pcr")
    assert (records.index.scans, records.index.num_groups, records.codec) == (
        "bit-planes",
        3,
        codecs["pcr"],
    )
    first = records.read_prefix(0, 1)
    assert first.encoded(0) == bytes([SIZE_PX, SIZE_PX]) + (pictures[0] & 0xF0).tobytes()
    whole = first.extended(records.read_extension(0, 1, 3))
    assert len(whole.encoded(0)) == 2 + 3 * 3 * SIZE_PX**2
    originals = RecordSet(LocalStorage(folder), "baseline")
    assert (originals.index.scans, originals.index.num_groups) == ("bit-planes-whole", 1)
    assert originals.read_prefix(0, 1).encoded(0) == (folder.parent / "0.png").read_bytes()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_show_what_the_groups_read_hold(
    folder: Path, pictures: list[np.ndarray], num_workers: int
) -> None:
    records = RecordSet(LocalStorage(folder), "pcr")
    for group, mask in ((1, 0xF0), (2, 0xFC), (3, 0xFF)):
        transform = EvalTransform(SIZE_PX, AugmentConfig(eval_crop_fraction=1.0))
        with RecordLoader(
            records,
            StaticScan(group),
            LoaderConfig(num_workers=num_workers),
            transform=transform,
            label="number",
            batch_size=NUM_IMAGES,
            seed=0,
            shuffle=False,
        ) as loader:
            (batch,) = loader.batches(0, 0, 1)
        np.testing.assert_array_equal(batch.images.numpy(), np.stack(pictures) & mask)


def test_records_of_a_codec_that_is_not_known_are_refused_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(components._components[GROUP], "bit-planes")
    with pytest.raises(RecordError, match=r"^pcr/index\.json: .*'bit-planes'.*libjpeg-default"):
        RecordSet(LocalStorage(folder), "pcr")


def test_two_codecs_of_one_name_are_refused() -> None:
    assert find_codec("libjpeg-default") is PROGRESSIVE
    with pytest.raises(ConfigError, match=r"images\.codec=libjpeg-default: registered by .* give one"):
        register(GROUP, "libjpeg-default")(lambda: BitPlanes("libjpeg-default", 3))
