"""Records can be written, checked and repaired in Azure's emulator (az:// through obstore)."""

from pathlib import Path

import pytest
from storage_azurite import CONTAINER, azurite

from pcr_exp.cli.prepare import prepare
from pcr_exp.config.commands import PrepareConfig
from pcr_exp.config.compose import compose
from pcr_exp.errors import RecordError
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.objects import ObjectStorage

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'pcr-exp[remote]'")
pytestmark = pytest.mark.program

ROOT = f"az://{CONTAINER}/records"
DATA = ["dataset=photos", "dataset.num_train=16", "dataset.num_val=8", "dataset.size_px=64"]


def test_records_go_there_are_checked_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with azurite(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        staging = tmp_path / "staging"
        places = [f"dataset.root={tmp_path}/images", f"records.root={ROOT}", f"records.staging={staging}"]

        assert prepare(compose("prepare", PrepareConfig, *DATA, *places)) == "finished"
        (name,) = [path.name for path in staging.iterdir()]
        there = ObjectStorage(ROOT)
        before = dict(there.sizes(name))
        assert prepare(compose("prepare", PrepareConfig, *DATA, *places, "check=true")) == "checked"
        prefix = RecordSet(there, f"{name}/train/pcr").read_prefix(0, 2)
        local = (staging / name / "train/pcr/record-000000.pcr").read_bytes()
        assert prefix.num_bytes < len(local) and prefix.encoded(0)[:2] == b"\xff\xd8"

        lost = f"{name}/train/pcr/record-000000.pcr"
        there.remove(lost)
        there.remove(f"{name}/train/pcr/index.json")
        prepare(compose("prepare", PrepareConfig, *DATA, *places))
        assert dict(there.sizes(name)) == before, "what is missing was sent again"
        assert there.write(lost, b"somebody else's") is False, "nothing is replaced"
        there.remove(lost)
        assert there.write(lost, b"somebody else's") is True
        there.remove(f"{name}/train/pcr/index.json")
        with pytest.raises(RecordError, match=r"record-000000\.pcr exists already, from a different encode"):
            prepare(compose("prepare", PrepareConfig, *DATA, *places))
        large = bytes(range(256)) * (20 * 2**12)
        assert there.write("large", large) is True, "in parts"
        assert there.read("large", len(large) - 3, 10) == large[-3:]
