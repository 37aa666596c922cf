"""One call of a C library reads ranges of several files, with the results of one read after the other."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import StorageError
from pcr_exp.storage import local
from pcr_exp.storage.local import LocalStorage, ManyReads, find_many_reads, library_path
from pcr_exp.storage.open import open_storage

SOURCE = Path(local.__file__).with_name("many_reads.c")
COMPILER = shutil.which("cc") or shutil.which("gcc")
SIZES = {"a": 0, "b": 1, "c": 5000, "sub/d é.pcr": 70_000}
RANGES = st.tuples(st.sampled_from(sorted(SIZES)), st.integers(0, 80_000), st.integers(0, 80_000))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ManyReads:
    """Library built from the current source, not the one built when the package was installed."""
    if COMPILER is None:
        pytest.skip("no C compiler is here: the library of many_reads.c is not tested")
    path = tmp_path_factory.mktemp("library") / "many_reads.so"
    words = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", SOURCE, "-o", path]
    subprocess.run([COMPILER, *words], check=True)
    return ManyReads(str(path))


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> LocalStorage:
    folder = tmp_path_factory.mktemp("files")
    (folder / "sub").mkdir()
    for name, size in SIZES.items():
        (folder / name).write_bytes(bytes((7 * i + len(name)) % 251 for i in range(size)))
    return LocalStorage(folder)


@pytest.fixture
def with_library(library: ManyReads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_many_reads", lambda: library)


@given(st.lists(RANGES, min_size=1, max_size=20))
def test_it_is_what_one_read_after_the_other_gives(
    library: ManyReads, files: LocalStorage, ranges: list[tuple[str, int, int]]
) -> None:
    found = library.read([(f"{files.root}/{file}", offset, length) for file, offset, length in ranges])
    assert found == [files.read(*one) for one in ranges]


@pytest.mark.parametrize("name, reason", [("none", "does not exist"), ("sub", "Is a directory")])
@pytest.mark.usefixtures("with_library")
def test_a_file_that_cannot_be_read_is_named(files: LocalStorage, name: str, reason: str) -> None:
    with pytest.raises(StorageError, match=f"{files.root}/{name} .*{reason}"):
        files.read_many([("c", 0, 10), (name, 0, 10), ("b", 0, 1)])
    with pytest.raises(StorageError, match=f"{files.root}/{name} .*{reason}"):
        files.read(name, 0, 10)


@pytest.mark.usefixtures("with_library")
def test_a_length_that_no_file_has_takes_no_memory(files: LocalStorage) -> None:
    assert files.read_many([("c", 0, 2**45), ("b", 0, 1)]) == [
        files.read("c", 0, 5000),
        files.read("b", 0, 1),
    ]


def test_without_the_library_files_are_read_one_by_one(
    files: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "find_many_reads", lambda: None)
    assert files.read_many([("c", 3, 4), ("b", 0, 9)]) == [files.read("c", 3, 4), files.read("b", 0, 9)]


@pytest.mark.usefixtures("with_library")
def test_a_throttle_reads_several_by_one_call(files: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    throttled = open_storage(str(files.root), StorageConfig(name="it", bandwidth_mib_per_s=1000))
    monkeypatch.setattr(LocalStorage, "read", None)
    assert throttled.read_many([("c", 0, 3), ("b", 0, 1)]) == [bytes([1, 8, 15]), bytes([1])]


def test_a_library_that_does_not_fit_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_many_reads() is None or find_many_reads().path == library_path()
    (tmp_path / "it.so").write_bytes(b"no library")
    for path in (None, str(tmp_path / "it.so")):
        monkeypatch.setattr(local, "library_path", lambda path=path: path)
        find_many_reads.cache_clear()
        try:
            assert find_many_reads() is None
        finally:
            find_many_reads.cache_clear()


def test_a_library_of_another_version_is_refused(library: ManyReads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MANY_READS_VERSION", 3)
    with pytest.raises(AttributeError, match=r"is of version 2, wanted 3: install pcr-exp again"):
        ManyReads(library.path)
