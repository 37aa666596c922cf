"""Records made in a real S3 server by the command that users type, and trained on there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from storage_weed import BUCKET, environment, s3_server

from pcr_exp.runs.rows import deterministic_part
from pcr_exp.storage.objects import ObjectStorage

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'pcr-exp[remote]'")
pytestmark = pytest.mark.program

REPO = Path(__file__).parents[2]
DATA = ["dataset=photos", "dataset.num_train=32", "dataset.num_val=8", "dataset.size_px=64"]
ROOT = f"s3://{BUCKET}/records"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3") / "server") as endpoint:
        yield endpoint


@pytest.fixture
def there(server: str, monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    return ObjectStorage(ROOT)


def command(name: str, tmp_path: Path, *settings: str, root: str = ROOT) -> subprocess.CompletedProcess[str]:
    places = [
        f"dataset.root={tmp_path}/images",
        f"records.root={root}",
        f"records.staging={tmp_path}/staging",
    ]
    line = [sys.executable, "-m", f"experiments.{name}", *DATA, *places, *settings]
    return subprocess.run(line, capture_output=True, text=True, cwd=REPO, env=dict(os.environ), timeout=300)


def rows_of(runs_root: Path) -> list[dict[str, Any]]:
    (path,) = runs_root.glob("*/rows.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


TRAINING = [
    "model=shufflenet_v2_x0_5",
    "scan=group_2",
    "training=debug",
    "training.epochs=2",
    "training.device=cpu",
]


def test_records_go_into_a_bucket_and_training_reads_them_there(there: ObjectStorage, tmp_path: Path) -> None:
    first = command("prepare", tmp_path)
    assert first.returncode == 0, first.stderr
    (name,) = [path.name for path in (tmp_path / "staging").iterdir()]
    assert first.stdout.splitlines()[-1] == f"{ROOT}/{name}"
    in_bucket = dict(there.sizes(name))
    local = {
        f"{name}/{path.relative_to(tmp_path / 'staging' / name).as_posix()}": path.stat().st_size
        for path in (tmp_path / "staging" / name).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
    assert in_bucket == local

    checked = command("prepare", tmp_path, "--check")
    assert f"{len(in_bucket)} objects below {ROOT}/{name} are as their indexes say" in checked.stdout, checked

    away, here = tmp_path / "away", tmp_path / "here"
    from_bucket = command("train", tmp_path, *TRAINING, f"runs_root={away}")
    assert from_bucket.returncode == 0, from_bucket.stderr
    from_disk = command("train", tmp_path, *TRAINING, f"runs_root={here}", root=f"{tmp_path}/staging")
    assert from_disk.returncode == 0, from_disk.stderr
    assert deterministic_part(rows_of(away)) == deterministic_part(rows_of(here))


def test_what_was_stopped_goes_on_and_what_others_made_stays(there: ObjectStorage, tmp_path: Path) -> None:
    """The same records again, a record and an index lost; then other records where these lie."""
    other = ["dataset.name=others"]
    assert command("prepare", tmp_path, *other).returncode == 0
    (name,) = [path.name for path in (tmp_path / "staging").iterdir()]
    before = dict(there.sizes(name))
    for lost in ("train/pcr/index.json", "train/pcr/record-000000.pcr"):
        there.remove(f"{name}/{lost}")
    incomplete = command("prepare", tmp_path, *other, "--check")
    assert incomplete.returncode == 1 and "there are no records of others, or not all" in incomplete.stderr
    again = command("prepare", tmp_path, *other)
    assert again.returncode == 0, again.stderr
    assert dict(there.sizes(name)) == before

    there.remove(f"{name}/train/pcr/record-000000.pcr")
    there.write(f"{name}/train/pcr/record-000000.pcr", b"somebody else's")
    there.remove(f"{name}/train/pcr/index.json")
    refused = command("prepare", tmp_path, *other)
    assert refused.returncode == 1
    assert "record-000000.pcr is there already, of another encode than this one, and stays" in refused.stderr
    assert there.read(f"{name}/train/pcr/record-000000.pcr", 0, 100) == b"somebody else's"
    made_anew = command("prepare", tmp_path, *other, "records.on_change=reencode")
    assert made_anew.returncode == 0, made_anew.stderr
    assert dict(there.sizes(name)) == before
