"""Commands write records to a real S3 server and train from it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from storage_weed import BUCKET, environment, s3_server

from pcr_exp.cli.prepare import prepare
from pcr_exp.config.commands import PrepareConfig
from pcr_exp.config.compose import compose
from pcr_exp.errors import ConfigError, RecordError
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
    assert f"{len(in_bucket)} objects below {ROOT}/{name} match their indexes" in checked.stdout

    away, here = tmp_path / "away", tmp_path / "here"
    from_bucket = command("train", tmp_path, *TRAINING, f"runs_root={away}")
    assert from_bucket.returncode == 0, from_bucket.stderr
    from_disk = command("train", tmp_path, *TRAINING, f"runs_root={here}", root=f"{tmp_path}/staging")
    assert from_disk.returncode == 0, from_disk.stderr
    assert deterministic_part(rows_of(away)) == deterministic_part(rows_of(here))


def test_what_was_stopped_goes_on_and_what_others_made_stays(
    there: ObjectStorage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lost records and indexes are sent again, foreign records stay, and lost local copies are reported."""
    places = [
        f"dataset.root={tmp_path}/images",
        f"records.root={ROOT}",
        f"records.staging={tmp_path}/staging",
    ]

    def prepared(*settings: str) -> None:
        prepare(compose("prepare", PrepareConfig, *DATA, "dataset.name=others", *places, *settings))

    prepared()
    (name,) = [path.name for path in (tmp_path / "staging").iterdir()]
    before, lost = dict(there.sizes(name)), f"{name}/train/pcr/record-000000.pcr"
    for path in (f"{name}/train/pcr/index.json", lost):
        there.remove(path)
    with pytest.raises(RecordError, match="the records of others are missing or incomplete"):
        prepared("check=true")
    prepared()
    assert dict(there.sizes(name)) == before

    there.remove(lost)
    with pytest.raises(RecordError, match=r"record-000000\.pcr has 0 bytes, but its index says"):
        prepared("check=true")
    there.write(lost, b"somebody else's")
    with pytest.raises(RecordError, match=r"record-000000\.pcr exists already, from a different encode"):
        prepared()
    assert there.read(lost, 0, 100) == b"somebody else's"
    there.remove(lost)
    shutil.rmtree(tmp_path / "staging")
    with pytest.raises(RecordError, match=r"record-000000\.pcr does not exist, and neither does"):
        prepared()
    shutil.rmtree(tmp_path / "staging")
    there.remove(f"{name}/train/pcr/index.json")
    prepared("records.on_change=reencode")
    assert dict(there.sizes(name)) == before
    assert f"{ROOT}/{name}" in capsys.readouterr().out


def test_where_records_cannot_be_written(tmp_path: Path) -> None:
    for root in ("http://127.0.0.1:1/records", "memory://records"):
        with pytest.raises(
            ConfigError, match=r"records cannot be written there\. Wanted a local folder, s3://"
        ):
            prepare(
                compose(
                    "prepare", PrepareConfig, *DATA, f"records.root={root}", f"dataset.root={tmp_path}/images"
                )
            )
