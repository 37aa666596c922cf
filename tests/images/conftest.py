"""The decoder's library, built from the current source, with each of its code paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from decoder_oracle import SOURCE, compiled, whole
from jpeg_photos import KINDS

from pcr_exp.images.decoder import JpegDecoder

PATHS = {
    "best": {},
    "plain": {"PCR_EXP_BITS": "plain", "PCR_EXP_SIMD": "plain"},
    "sse41": {"PCR_EXP_SIMD": "sse41"},
}
"""Environment variables by name. A library chooses its code path on first use."""


@pytest.fixture(scope="session")
def source_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Library built from the current source, not the one built when the package was installed."""
    path = tmp_path_factory.mktemp("library") / "decoder.so"
    done = compiled(path, "-shared", "-fPIC", SOURCE)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="session", params=PATHS)
def each(source_library: Path, request: pytest.FixtureRequest) -> JpegDecoder:
    """A copy of the library that uses one of its code paths."""
    path = source_library.with_name(f"{request.param}.so")
    path.write_bytes(source_library.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PCR_EXP_BITS", "PCR_EXP_SIMD"):
            patch.delenv(name, raising=False)
        for name, value in PATHS[request.param].items():
            patch.setenv(name, value)
        found = JpegDecoder(str(path))
        assert found.paths
        whole(found, KINDS["420"])
    return found


@pytest.fixture(scope="session")
def ours(source_library: Path) -> JpegDecoder:
    return JpegDecoder(str(source_library))
