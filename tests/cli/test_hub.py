"""`prepare` uploads records to a stand-in for the Hub, indexes last, and replaces nothing unasked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from composing import compose
from storage_hub_server import REPO, TOKEN, Hub, running_hub

import pcr_exp as pcr
from pcr_exp.cli.prepare import prepare
from pcr_exp.errors import RecordError, RefusedError
from pcr_exp.runs.rows import read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.storage import retry

pytest.importorskip("huggingface_hub", reason="pip install 'pcr-exp[hub]'")

ROOT = f"hf://datasets/{REPO}"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setattr(retry, "BACKOFF_S", 0.001)
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        yield hub


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for i in range(40):
        folder = tmp_path / "photos" / ("dog" if i % 2 else "cat")
        folder.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / f"{i:02}.jpg"), rng.integers(0, 255, (32, 40, 3), dtype=np.uint8))
    return tmp_path / "photos"


def settings(photos: Path, *more: str) -> Any:
    given = [
        "dataset=folder",
        f"dataset.root={photos}",
        f"records.root={ROOT}",
        "dataset.images_per_record=8",
    ]
    return compose("prepare", *given, f"records.staging={photos.parent}/staging", *more)


def test_records_go_there_and_the_indexes_last(
    hub: Hub, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.faults.extend(["503", "none", "429"])
    assert prepare(settings(photos)) == "finished"
    address = capsys.readouterr().out.splitlines()[-1]
    assert address.startswith(f"{ROOT}/photos-")
    first, *_, indexes, notes = hub.commits
    assert {Path(path).name for path in indexes} == {"index.json"} and len(indexes) == 6
    assert {Path(path).name for path in notes} == {"source.json", "source_images.csv.gz"}
    assert "README.md" in first and not any(path.endswith("index.json") for path in first)
    (made,) = (tmp_path / "staging").iterdir()
    local = {f"{made.name}/{p.relative_to(made)}": p.read_bytes() for p in made.rglob("*.pcr")}
    assert local and local.items() <= hub.files.items()
    there, here = pcr.open(f"{address}/train"), pcr.open(made / "train")
    assert len(there) == len(here) and (there[3][0] == here[3][0]).all()
    card = hub.files["README.md"].decode()
    assert card.startswith("---\n# license: ") and f'pcr.open("{address}/train", "group_5")' in card
    assert "| train |" in card and "Classes of `class`: 2 (cat, dog)" in card and "| 10 |" in card
    num_commits = len(hub.commits)
    assert prepare(settings(photos)) == "finished" and len(hub.commits) == num_commits, "all is there"
    assert prepare(settings(photos, "check=content")) == "checked"
    assert "match their indexes" in capsys.readouterr().out


def test_nothing_is_replaced_unless_that_is_asked_for(hub: Hub, photos: Path) -> None:
    hub.files["README.md"] = b"of mine"
    prepare(settings(photos))
    assert hub.files["README.md"] == b"of mine"
    before = dict(hub.files)
    (photos / "cat" / "00.jpg").unlink()
    with pytest.raises(RecordError, match=r"1 removed: cat/00\.jpg"):
        prepare(settings(photos))
    assert hub.files == before
    prepare(settings(photos, "records.on_change=reencode"))
    (name,) = {path.split("/")[0] for path in hub.files if path.endswith(".pcr")}
    ids = {data.id(i) for split in ("train", "tune", "val")
           for data in [pcr.open(f"{ROOT}/{name}/{split}")] for i in range(len(data))}  # fmt: skip
    assert len(ids) == 39 and "cat/00.jpg" not in ids


def test_a_dataset_that_is_not_there_is_not_made(
    hub: Hub, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_another")
    hub.is_private = True
    with pytest.raises(
        RefusedError, match=r"there is no dataset someone/pets on the Hub.* Create it with `hf`"
    ):
        prepare(settings(photos))


def test_a_run_reads_the_hub_once_and_then_its_cache(hub: Hub, photos: Path, tmp_path: Path) -> None:
    prepare(settings(photos))
    given = ["dataset=folder", f"dataset.root={photos}", f"records.root={ROOT}", "records.auto_prepare=false"]
    given += ["dataset.images_per_record=8", "model=shufflenet_v2_x0_5", "scan=group_2", "training=debug"]
    given += ["training.batch_size=8", "training.epochs=1", "training.num_threads=1", "loader.num_workers=0"]
    given += [f"runs_root={tmp_path}/runs", f"storage.cache={tmp_path}/cache", "storage.cache_mib=64"]
    rows = []
    for seed in (0, 1):
        hub.requests.clear()
        folder = run_training(compose("train", *given, f"seed={seed}"), progress=False).folder
        rows.append(read_rows(folder / "rows.jsonl")[-1])
    assert rows[0]["bytes_read"] > 0 == rows[0]["cached_bytes"]
    assert rows[1]["bytes_read"] == 0 < rows[1]["cached_bytes"] <= rows[0]["bytes_read"]
