"""Reading and writing on a local Hub server, which fails on demand."""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from storage_hub_server import REPO, TOKEN, Hub, running_hub

import pcr_exp as pcr
from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import MissingFileError, RefusedError, StorageError
from pcr_exp.storage import retry
from pcr_exp.storage.hub import HubStorage
from pcr_exp.storage.open import open_remote, open_storage

pytest.importorskip("huggingface_hub", reason="pip install 'pcr-exp[hub]'")

DATA = bytes(range(250)) * 4
DATASET, BUCKET = f"hf://datasets/{REPO}", f"hf://buckets/{REPO}"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A Hub with three files; requests are repeated almost without waiting."""
    monkeypatch.setattr(retry, "BACKOFF_S", 0.001)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.files = {"pets/train/a b.pcr": DATA, "pets/rejected.csv": b"id,reason\n", "pets/empty.pcr": b""}
        yield hub


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("address", [DATASET, BUCKET])
def test_ranges_sizes_and_names(address: str) -> None:
    storage = open_storage(f"{address}/pets/", StorageConfig(name="unlimited"))
    assert storage.read("train/a b.pcr", 10, 20) == DATA[10:30] and storage.is_remote
    assert storage.read("train/a b.pcr", 990, 99) == DATA[990:], "fewer at its end"
    assert storage.read("train/a b.pcr", 1000, 9) == storage.read("train/a b.pcr", 5, 0) == b""
    assert storage.size("train/a b.pcr") == 1000 and storage.size("empty.pcr") == 0
    assert storage.read("rejected.csv", 3, 6) == b"reason"
    assert storage.names("") == {"rejected.csv", "empty.pcr"} and storage.names("train") == {"a b.pcr"}
    assert storage.names("nothing") == set()
    assert dict(HubStorage(f"{address}/pets").sizes("train")) == {"train/a b.pcr": 1000}
    assert str(storage) == f"{address}/pets"


def test_a_signed_address_is_kept_and_asked_for_again_when_it_has_expired(hub: Hub) -> None:
    storage = HubStorage(DATASET)
    for offset in range(5):
        assert storage.read("pets/train/a b.pcr", offset, 1) == DATA[offset : offset + 1]
    assert (len(hub.asked("hub")), len(hub.asked("files"))) == (1, 5)
    hub.signature += 1
    assert storage.read("pets/train/a b.pcr", 7, 2) == DATA[7:9]
    assert (len(hub.asked("hub")), len(hub.asked("files"))) == (2, 7)
    assert storage.counts().num_retries == 0, "nothing failed"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("429", "status 429"),
        ("limited", "status 429"),
        ("503", "status 503"),
        ("cut", ""),
        ("short", "the answer ended after 4 of 100 bytes"),
        ("no size", "the answer does not state a size (Content-Range: bytes 0-99/*)"),
        ("500", "status 500"),
    ],
)
def test_what_passes_is_asked_again(
    hub: Hub, fault: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = HubStorage(DATASET)
    hub.faults.extend([fault, "none", fault, fault])
    with caplog.at_level(logging.WARNING):
        assert storage.read("pets/train/a b.pcr", 0, 100) == DATA[:100]
    assert storage.counts().num_retries == 3
    assert f"{DATASET}/pets/train/a b.pcr" in caplog.text and "Attempt 2 of 7" in caplog.text
    assert told in caplog.text


def test_what_lasts_is_told_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = HubStorage(DATASET)
    with pytest.raises(MissingFileError, match=rf"{DATASET}/pets/no.pcr does not exist"):
        storage.read("pets/no.pcr", 0, 1)
    assert storage.size_or_none("pets/no.pcr") is None
    hub.faults.extend(["403"])
    with pytest.raises(
        RefusedError, match=r"the server refuses access \(403 .*HF_TOKEN, or log in with `hf auth"
    ):
        storage.read("pets/train/a b.pcr", 0, 1)
    assert storage.counts().num_retries == 0
    monkeypatch.setattr(retry, "NUM_ATTEMPTS", 2)
    hub.faults.extend(["503", "503"])
    with pytest.raises(StorageError, match=r"status 503.* It was tried 2 times"):
        storage.read("pets/train/a b.pcr", 0, 1)
    hub.stop()
    with pytest.raises(StorageError, match=r"nothing listens there \(connection refused\)"):
        storage.read("pets/train/a b.pcr", 0, 1)


@pytest.mark.usefixtures("hub")
def test_a_name_that_dns_does_not_know_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://nowhere.invalid")
    storage = HubStorage(DATASET)
    with pytest.raises(StorageError, match=r"its server name does not resolve \(DNS\)"):
        storage.read("pets/train/a b.pcr", 0, 1)
    assert storage.counts().num_retries == 0


@pytest.mark.usefixtures("hub")
def test_an_address_that_another_thread_finds_expired_may_still_be_read() -> None:
    """Storage behind the Hub has ETags of its own, which do not mean that the file was replaced."""
    storage = HubStorage(DATASET)
    name = "pets/train/a b.pcr"
    assert storage.read(name, 0, 5) == DATA[:5]
    address = storage._locations.pop(name)
    assert storage._receive(address, name, 5, 5, signed=True) == (DATA[5:10], len(DATA))


def test_answers_that_are_no_ranges_are_refused(hub: Hub) -> None:
    for answers, message in (
        ("other range", "sent a different range from the one requested"),
        ("whole", "ignores range requests"),
        ("page", "answers with a web page"),
    ):
        hub.answers = answers
        with pytest.raises(StorageError, match=message):
            HubStorage(DATASET).read("pets/train/a b.pcr", 0, 9)


def test_a_file_that_was_replaced_is_noticed(hub: Hub) -> None:
    storage = HubStorage(DATASET)
    assert storage.read("pets/train/a b.pcr", 0, 9) == DATA[:9]
    hub.files["pets/train/a b.pcr"] = DATA[::-1]
    hub.signature += 1
    with pytest.raises(StorageError, match="was replaced while it was in use"):
        storage.read("pets/train/a b.pcr", 0, 9)


def test_the_token_goes_to_the_hub_alone(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.is_private = True
    with pytest.raises(RefusedError, match=rf"there is no dataset {REPO} on the Hub, or it is private"):
        HubStorage(DATASET).read("pets/train/a b.pcr", 0, 9)
    with pytest.raises(RefusedError, match=rf"there is no bucket {REPO} on the Hub"):
        list(HubStorage(BUCKET).sizes("pets"))
    hub.requests.clear()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert HubStorage(DATASET).read("pets/train/a b.pcr", 0, 9) == DATA[:9]
    assert [(kind, token) for kind, _, token in hub.requests] == [("hub", f"Bearer {TOKEN}"), ("files", None)]


def test_writes_are_gathered_into_commits_and_replace_nothing_unasked(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    storage = HubStorage(f"{DATASET}/pets")
    assert storage.write("a.csv", b"1") and storage.write("b.csv", b"2") and hub.commits == []
    storage.flush()
    storage.flush()
    assert hub.commits == [["pets/a.csv", "pets/b.csv"]] and hub.files["pets/a.csv"] == b"1"
    assert storage.write("a.csv", b"1"), "it is there"
    assert not storage.write("a.csv", b"3") and not storage.write("a.csv", b"3", replaces=b"4")
    assert not storage.write("c.csv", b"3", replaces=b"4")
    assert storage.write("a.csv", b"3", replaces=b"1")
    storage.remove("b.csv")
    storage.remove("nothing.csv")
    storage.flush()
    assert hub.commits[1:] == [["pets/a.csv", "-pets/b.csv"]] and storage.read("a.csv", 0, 9) == b"3"
    storage.remove("a.csv")
    assert storage.write("a.csv", b"5"), "in place of one that is about to be removed"
    assert not storage.write("a.csv", b"6"), "what was collected counts, though the Hub has other bytes"
    assert storage.write("a.csv", b"5") and storage.write("new.csv", b"7")
    storage.remove("new.csv")
    monkeypatch.setattr("pcr_exp.storage.hub._COMMIT_FILES", 2)
    assert storage.write("d.csv", b"6")
    assert hub.commits[2:] == [["pets/a.csv", "pets/d.csv"]], "as many as a commit should have"
    monkeypatch.setenv("HF_TOKEN", "hf_of_another")
    storage.write("e.csv", b"7")
    with pytest.raises(StorageError, match="the server refuses access"):
        storage.flush()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    storage.flush()
    assert hub.commits[3:] == [["pets/e.csv"]], "a commit that failed loses nothing"


@pytest.mark.usefixtures("hub")
def test_a_bucket_is_written_by_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library sends the bytes by its own protocol, which this Hub does not support."""
    sent = []
    monkeypatch.setattr(
        "huggingface_hub.HfApi.batch_bucket_files", lambda _, *given, **named: sent.append((given, named))
    )
    storage = HubStorage(f"{BUCKET}/pets")
    storage.write("a.csv", b"1")
    storage.remove("rejected.csv")
    storage.flush()
    assert sent == [((REPO,), {"add": [(b"1", "pets/a.csv")], "delete": ["pets/rejected.csv"]})]


def test_records_are_opened_and_survive_pickling(hub: Hub, split: Path) -> None:
    hub.files = {f"v1/train/{p.relative_to(split)}": p.read_bytes() for p in split.rglob("*") if p.is_file()}
    there, here = (pcr.open(place, "group_3", label="number") for place in (f"{DATASET}/v1/train", split))
    assert len(there) == len(here) and (there[7][0] == here[7][0]).all()
    assert pickle.loads(pickle.dumps(there))[9][1] == here[9][1]
    with (
        there.loader(20, image_size=32, num_workers=0, seed=1) as far,
        here.loader(20, image_size=32, num_workers=0, seed=1) as near,
    ):
        assert all((a[0] == b[0]).all() for a, b in zip(far, near, strict=True))


def test_addresses_and_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    assert HubStorage("hf://datasets/a/b@refs%2Fpr%2F1/c")._resolves.endswith(
        "/datasets/a/b/resolve/refs%2Fpr%2F1/"
    )
    for address in ("hf://a/b", "hf://datasets/a", "hf://models/a/b", "hf://spaces/a/b/c"):
        with pytest.raises(StorageError, match=r"wanted hf://datasets/<owner>/<name>"):
            HubStorage(address)
    with pytest.raises(StorageError, match=r"storage_options=\{'token': 1\}: wanted none for hf://"):
        open_remote(DATASET, "auto", {"token": 1})
    with pytest.raises(StorageError, match="storage_client=obstore supports only"):
        open_remote(DATASET, "obstore")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        StorageError, match=r"needs a client that is not installed.*pip install 'pcr-exp\[hub\]'"
    ):
        HubStorage(DATASET)
