"""The C decoder on damaged and malicious files: its memory, its work, and the same results as without it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from decoder_oracle import SOURCE, compiled
from hostile_files import CRAFTED, framed, many_restarts, records, restarting, unframed
from jpeg_photos import KINDS, groups_of

from pcr_exp.config.records import MAX_PIXELS
from pcr_exp.errors import ImageError, RecordError
from pcr_exp.images import decode as decoding
from pcr_exp.images.decode import open_decoder
from pcr_exp.images.decoder import JpegDecoder
from pcr_exp.images.jpeg import EOI, join_pieces

HERE = Path(__file__).parent
IS_ARM = platform.machine() in ("aarch64", "arm64")
SIMD, BITS = (("neon", "plain") if IS_ARM else ("avx2", "sse41", "plain")), ("pdep", "plain")
PATHS = [", ".join(path) for path in product(SIMD, BITS[IS_ARM:])]
NUM_DAMAGED = 20_000
MEMORY = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FILES = [
    *records(0),
    *records(2),
    *records(5),
    *records(10),
    *restarting(progressive=True),
    *CRAFTED.values(),
]


def built(folder: Path, *checks: str) -> Path:
    program = folder / "checked"
    words = ("-g", "-O1", *checks, "-fsanitize-coverage=trace-pc", "-pthread", f"-I{SOURCE.parent}")
    done = compiled(program, *words, HERE / "decoder_checked.c")
    if "san" in done.stderr:
        pytest.skip(f"this compiler cannot check accesses to memory: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("memory"), *MEMORY)


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> JpegDecoder:
    path = tmp_path_factory.mktemp("library") / "decoder.so"
    done = compiled(path, "-shared", "-fPIC", SOURCE)
    assert done.returncode == 0, done.stderr
    return JpegDecoder(str(path))


def run(program: Path, path: str, files: list[bytes], count: int, seed: int, num_threads: int = 0) -> str:
    """Return the numbers of decoded and refused files, and a checksum of the results."""
    simd, bits = path.split(", ")
    emulator = ["qemu-aarch64"] if simd == "neon" and not IS_ARM else []
    done = subprocess.run(
        [*emulator, program, str(count), str(seed), str(num_threads)],
        input=framed(files),
        capture_output=True,
        check=False,
        env=os.environ | {"PCR_EXP_SIMD": simd, "PCR_EXP_BITS": bits},
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    taken, results = done.stdout.decode().splitlines()
    if taken != path:
        pytest.skip(f"this machine has no {path}")
    return results


def damaged(program: Path, files: list[bytes], count: int, seed: int) -> list[bytes]:
    """Return files with the same damage as in `run`; the first are undamaged."""
    done = subprocess.run(
        [program, str(count), str(seed)], input=framed(files), capture_output=True, check=True
    )
    return unframed(done.stdout)


@pytest.fixture(scope="session")
def by_plain_c(checked: Path) -> str:
    return run(checked, PATHS[-1], FILES, NUM_DAMAGED, seed=1)


@pytest.mark.parametrize("path", PATHS)
def test_no_bytes_lead_it_outside_its_memory_or_work(checked: Path, path: str, by_plain_c: str) -> None:
    """Decodes whole files, parts and pieces under AddressSanitizer and UBSan, and counts steps and memory.

    Every code path gives the same pixels, or none.
    """
    decoded, refused, _ = by_plain_c.split()
    assert int(decoded) > 4_000 and int(refused) > 8_000
    assert path == PATHS[-1] or run(checked, path, FILES, NUM_DAMAGED, seed=1) == by_plain_c


@pytest.mark.skipif(
    IS_ARM or not (shutil.which("aarch64-linux-gnu-gcc") and shutil.which("qemu-aarch64")),
    reason="wants Debian's gcc-aarch64-linux-gnu and qemu-user, on x86-64",
)
def test_arm64_gives_the_same(checked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder_oracle.COMPILER", "aarch64-linux-gnu-gcc")
    emulated = built(tmp_path, "-static")
    assert run(emulated, "neon, plain", FILES, 1_500, 1) == run(checked, PATHS[-1], FILES, 1_500, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_nor_do_two_million(checked: Path, seed: int) -> None:
    found = {run(checked, path, FILES, 100_000, seed) for path in PATHS}
    assert len(found) == 1


def test_threads_give_what_one_gives(checked: Path) -> None:
    """Sixteen threads make the first calls, which initialise the constants."""
    run(checked, PATHS[0], FILES, 100, seed=3, num_threads=16)


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("threads"), "-fsanitize=thread", "-fno-sanitize-recover=all")


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_no_thread_writes_what_another_reads(watched: Path, path: str) -> None:
    run(watched, path, FILES, 300, seed=3, num_threads=16)


def opened(group: int, mode: str) -> decoding.Decoder:
    return open_decoder(mode, "pcr" if group else "baseline", MAX_PIXELS)


Rectangle = tuple[int, int, int, int]


def shown(
    by: JpegDecoder | None,
    jpeg: bytes,
    group: int,
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
    rectangle: Rectangle | None = None,
) -> np.ndarray | str:
    """Return an image as a loader sees it, or the pixels of a rectangle, or the error message."""
    monkeypatch.setattr(decoding, "find_decoder", lambda: by)
    try:
        image = opened(group, mode)(bytearray(jpeg), group, "sample 7")
        part = image.part(*(rectangle or (0, 0, image.height_px, image.width_px)))
    except RecordError as error:
        return str(error)
    if rectangle is None:
        return part.pixels
    top, left, rows, columns = (int(number) for number in part[1:5])
    return part.pixels[top : top + rows, left : left + columns]


def are_same(found: np.ndarray | str, wanted: np.ndarray | str) -> bool:
    if isinstance(found, str) or isinstance(wanted, str):
        return isinstance(found, str) and isinstance(wanted, str) and found == wanted
    return np.array_equal(found, wanted)


@pytest.mark.parametrize("mode", ["scaled", "unsmoothed"])
@pytest.mark.parametrize("group", [0, 1, 2, 3, 5, 10])
def test_damaged_records_show_what_they_show_today(
    checked: Path, ours: JpegDecoder, group: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pixels or errors are the same with and without the C decoder, even if scans were lost or gained."""
    num_errors = 0
    for jpeg in damaged(checked, list(records(group)), 600, seed=group):
        with_it, without = (shown(by, jpeg, group, mode, monkeypatch) for by in (ours, None))
        assert are_same(with_it, without)
        num_errors += isinstance(with_it, str)
    assert 150 < num_errors < 550


@pytest.mark.parametrize("group", [0, 5, 10])
def test_damaged_files_are_decoded_whole_as_today(
    checked: Path, ours: JpegDecoder, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single images and `quality` decode files this way."""

    def whole(by: JpegDecoder | None, jpeg: bytes) -> np.ndarray | str:
        monkeypatch.setattr(decoding, "find_decoder", lambda: by)
        try:
            return decoding.decode(jpeg, "sample 7")
        except RecordError as error:
            return str(error)

    for jpeg in damaged(checked, list(records(group)), 300, seed=30 + group):
        assert are_same(whole(ours, jpeg), whole(None, jpeg))


def test_a_scan_that_is_hidden_is_smoothed_as_today(
    ours: JpegDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group, wanted in ((1, 5), (5, 10), (10, 3)):
        jpeg = join_pieces(groups_of("420")[:group])
        with_it, without = (shown(by, jpeg, wanted, "unsmoothed", monkeypatch) for by in (ours, None))
        assert are_same(with_it, without)


@pytest.mark.parametrize("group", [0, 10])
def test_damage_behind_a_part_may_be_passed_over(
    checked: Path, ours: JpegDecoder, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pixels then equal those of libjpeg decoding on despite the damage."""
    files = records(group)[10:15]
    num_passed_over = 0
    for jpeg in damaged(checked, list(files), 600, seed=10 + group):
        with_it, without = (
            shown(by, jpeg, group, "scaled", monkeypatch, (4, 3, 6, 9)) for by in (ours, None)
        )
        if are_same(with_it, without):
            continue
        assert isinstance(with_it, np.ndarray) and isinstance(without, str)
        pixels = simplejpeg.decode_jpeg(jpeg, "RGB", fastdct=False, fastupsample=False, strict=False)
        assert np.array_equal(with_it, pixels[4:10, 3:12])
        num_passed_over += 1
    assert (num_passed_over > 3) == (group > 0), "of a sequential file libjpeg reads no more either"


@pytest.mark.parametrize("what", CRAFTED)
def test_crafted_files_show_what_they_show_today(
    ours: JpegDecoder, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jpeg = CRAFTED[what]
    if what.startswith("huge"):
        with pytest.raises(RecordError, match="max_pixels"):
            opened(10, "scaled")(jpeg, 10, "sample 7")
        return
    group = 0 if jpeg.find(b"\xff\xc0") > 0 else 10
    with_it, without = (shown(by, jpeg, group, "scaled", monkeypatch) for by in (ours, None))
    assert are_same(with_it, without)


def test_the_most_pixels_are_a_limit_of_its_own(ours: JpegDecoder) -> None:
    """Callers that set no limit are not given gigabytes; decoder_checked.c checks that no memory is taken."""
    assert ours.read_frame(CRAFTED["huge"]).height_px == 4000
    with pytest.raises(ImageError, match="left to libjpeg"):
        ours.read_frame(CRAFTED["huge beyond any limit"])
    with pytest.raises(ImageError, match="left to libjpeg"):
        ours.decode(CRAFTED["huge beyond any limit"], 8, 0, 0, 1, 1)


def test_work_grows_with_blocks_and_scans_alone(checked: Path) -> None:
    """Files have 64 scans with a restart at each of up to 2,500 blocks, or thousands of scans."""
    thousands = KINDS["tiny"][:-2] + KINDS["tiny"][KINDS["tiny"].index(b"\xff\xda") : -2] * 3000 + EOI
    files = [many_restarts(side) for side in (8, 64, 400)] + [thousands]
    decoded, refused, _ = run(checked, PATHS[0], files, len(files), seed=0).split()
    assert (int(decoded), int(refused)) == (3, 1)
