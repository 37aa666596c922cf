"""A user's own folders in places shared by all users; whatever others put there is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pcr_exp.errors import StorageError
from pcr_exp.system import own_folder as module
from pcr_exp.system.atomic import write_atomic
from pcr_exp.system.lock import HOST_LOCK, hold_host
from pcr_exp.system.own_folder import own_folder, require_safe_parent, shared_folder


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /dev/shm; the temp folder is a different one."""
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    for folder in (shared, temporary):
        folder.mkdir()
        folder.chmod(0o1777)
    monkeypatch.setattr(module, "SHARED_MEMORY", shared)
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(temporary))
    return shared


def test_it_is_named_for_the_user_who_alone_can_enter_it(shared: Path) -> None:
    for _ in range(2):
        found = shared_folder()
        assert found == shared / f"pcr-exp-{os.geteuid()}"
        assert found.stat().st_mode & 0o777 == 0o700


def in_its_place(path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "a symbolic link":
        (path.parent / "theirs").mkdir(mode=0o700)
        path.symlink_to(path.parent / "theirs")
    elif kind == "not a folder":
        path.write_text("a file")
    elif kind == "by other users":
        path.mkdir()
        path.chmod(0o777)
    else:
        path.mkdir(mode=0o700)
        uid = os.geteuid()
        if uid == 0:
            os.chown(path, 12345, 12345)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
            path.rename(path.with_name(f"pcr-exp-{uid + 1}"))


KINDS = ["a symbolic link", "not a folder", "by other users", "belongs to another user"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_another_has_put_in_its_place_is_left_alone(
    shared: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shared / f"pcr-exp-{os.geteuid()}"
    in_its_place(path, kind, monkeypatch)
    assert shared_folder().parent == shared.parent / "tmp", "no other user can stop us"
    path = shared / f"pcr-exp-{os.geteuid()}"
    with pytest.raises(StorageError, match=kind):
        own_folder(path)


def test_where_neither_place_can_be_used_it_is_said_whose_fault_it_is(shared: Path) -> None:
    for place in (shared, shared.parent / "tmp"):
        (place / f"pcr-exp-{os.geteuid()}").write_text("a file")
    with pytest.raises(StorageError, match=r"tmp/pcr-exp-\d+ is not a folder, so it is not used"):
        shared_folder()


def test_a_folder_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="missing/mine cannot be written"):
        own_folder(tmp_path / "missing" / "mine")


@pytest.mark.parametrize(
    ("mode", "is_safe"), [(0o755, True), (0o1777, True), (0o777, False), (0o757, False), (0o700, True)]
)
def test_who_can_write_to_a_parent_could_exchange_what_is_in_it(
    tmp_path: Path, mode: int, is_safe: bool
) -> None:
    tmp_path.chmod(mode)
    if is_safe:
        require_safe_parent(tmp_path)
        return
    with pytest.raises(StorageError, match=rf"is writable by other users.*`chmod go-w {tmp_path}`"):
        require_safe_parent(tmp_path)


def test_a_group_of_one_s_own_is_no_other_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o775)
    monkeypatch.setattr(os, "getegid", lambda: tmp_path.stat().st_gid)
    require_safe_parent(tmp_path)
    monkeypatch.setattr(os, "getegid", lambda: tmp_path.stat().st_gid + 1)
    with pytest.raises(StorageError, match="by other users"):
        require_safe_parent(tmp_path)


def test_no_link_in_a_shared_place_leads_the_host_s_lock_to_another_file(shared: Path) -> None:
    victim = shared.parent / "victim"
    victim.write_text("a file of mine")
    for name in (HOST_LOCK, f"{HOST_LOCK}.holder", f"{HOST_LOCK}.holder.tmp"):
        (shared / name).symlink_to(victim)
    with hold_host(lambda holder: pytest.fail(f"waits for {holder}")):
        assert (shared / f"pcr-exp-{os.geteuid()}" / f"{HOST_LOCK}.holder").exists()
    assert victim.read_text() == "a file of mine"


def test_a_file_is_written_anew_and_never_through_a_link(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "facts.json"
    victim.write_text("a file of mine")
    (tmp_path / "facts.json.tmp").symlink_to(victim)
    write_atomic(path, [b"facts"])
    assert (path.read_bytes(), victim.read_text()) == (b"facts", "a file of mine")
    assert not path.is_symlink()
    (tmp_path / "facts.json.tmp").write_text("left by a process that was killed, and longer")
    write_atomic(path, [b"facts"])
    assert path.read_bytes() == b"facts" and len(list(tmp_path.iterdir())) == 2
    (tmp_path / "facts.json.tmp").mkdir()
    with pytest.raises(StorageError, match="cannot be written"):
        write_atomic(path, [b"other"])
    assert path.read_bytes() == b"facts" and (tmp_path / "facts.json.tmp").is_dir()
