"""The rate of decoding alone, with the workers' own code and in as many processes."""

import os
from pathlib import Path
from typing import Any

import pytest
from throughput_jobs import job

from experiments.loaders import bound
from experiments.loaders.bound import decode_alone
from pcr_exp.errors import LoaderError, RecordError


@pytest.mark.parametrize(("scan", "num_workers"), [("baseline", 1), ("group_1", 2)])
def test_processes_decode_what_the_loader_would(scan: str, num_workers: int, split: Path) -> None:
    found = decode_alone(split, job(scan, "scaled", num_workers, label="number"), measure_s=0.1)
    assert found.images_per_s > 100 and 0 < found.cpu_s_per_image < 0.1
    # CPU seconds per second: at most one per process, which computes all the time.
    assert found.images_per_s * found.cpu_s_per_image <= 1.2 * num_workers


def test_an_image_that_cannot_be_decoded_is_an_error(split: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound, "_files", lambda *_: [b"nothing"] * 4)
    with pytest.raises(RecordError, match="an image cannot be decoded"):
        decode_alone(split, job("group_1", "scaled", 1, label="number"), measure_s=0.1)


def test_a_process_that_dies_is_not_waited_for(split: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second_dies(_: Any, begin: Any, *given: Any) -> None:
        number = given[-2]
        if number == 1:
            os._exit(1)
        begin.wait()  # for the other, which never arrives

    monkeypatch.setattr(bound, "_decode_for", second_dies)
    with pytest.raises(LoaderError, match=r"a process that decodes alone died.*loader\.num_workers"):
        decode_alone(split, job("group_1", "scaled", 2, label="number"), measure_s=0.1)
