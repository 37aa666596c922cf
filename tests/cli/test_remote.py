"""Runners give the same results from records on a web server as from a local folder."""

from pathlib import Path

import pandas as pd
import pytest
from composing import compose
from storage_http_server import range_server

from pcr_exp.cli.quality import quality
from pcr_exp.records.prepare import ensure_records

pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install 'pcr-exp[remote]'")


@pytest.mark.program
def test_quality_of_remote_records_is_that_of_local_ones(tmp_path: Path) -> None:
    data = [f"dataset.root={tmp_path}/images", "dataset.num_train=16", "dataset.num_val=8"]
    settings = [*data, "dataset.size_px=176", "groups=[1,5,10]", "max_images=4", "num_workers=1"]
    local = compose("quality", *settings, f"records.root={tmp_path}/records", f"out={tmp_path}/local")
    ensure_records(local.dataset, local.records)
    with range_server(tmp_path / "records") as server:
        away = [f"records.root={server.url}", "records.auto_prepare=false"]
        assert quality(compose("quality", *settings, *away, f"out={tmp_path}/remote")) == "finished"
        assert any(method == "GET" for method, *_ in server.requests)
    quality(local)
    here, there = (pd.read_csv(tmp_path / name / "quality.csv") for name in ("local", "remote"))
    pd.testing.assert_frame_equal(here, there)
    assert sorted(set(here["group"])) == [1, 5, 10]
