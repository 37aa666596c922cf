"""Measurements in turns: interleaved repeats, loaders that fail, and files that stay cached."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from throughput_jobs import job, opened

from experiments.loaders import contest as interleave
from experiments.loaders.contest import Contest
from experiments.loaders.process import LoaderProcess
from pcr_exp.config.loader import StorageConfig
from pcr_exp.errors import LoaderError
from pcr_exp.measuring.throughput import levels
from pcr_exp.measuring.throughput.measure import Measurement


@pytest.fixture
def contest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Contest]:
    """Open contests whose processes answer at once; `failing` is the first failing request by loader."""

    def open_with(jobs: list[Any], failing: dict[str, int] | None = None, **how: Any) -> Contest:
        asked: dict[str, int] = {}

        def ask(process: LoaderProcess, request: dict[str, Any]) -> dict[str, Any]:
            if request["do"] == "build":
                return {"build_s": 1.0, "build_cpu_s": 1.0}
            if request["do"] == "bound":
                return {"images_per_s": 100.0, "cpu_s_per_image": 0.02}
            asked[process.name] = asked.get(process.name, 0) + 1
            if asked[process.name] >= (failing or {}).get(process.name, 99):
                raise LoaderError(f"{process.name} is tired")
            return Measurement(12 * request["job"]["num_epochs"], 1.0, 0.1, 1.0, 2.0).to_json()

        monkeypatch.setattr(LoaderProcess, "ask", ask)
        return Contest(opened(tmp_path)[0], jobs, **how)

    return open_with


def test_repeats_are_interleaved(contest: Callable[..., Contest]) -> None:
    with contest([job("baseline", "libjpeg"), job()]) as opened_contest:
        opened_contest.warm_up(lambda *_: None)
        told: list[tuple[int, int]] = []
        rows = list(
            opened_contest.rows(3, lambda *counts: told.append(counts), measure_s=2.0, cold_cache=False)
        )
    assert [row["loader"] for row in rows] == ["baseline", "image_folder_pil"] * 3
    assert [row["repeat"] for row in rows] == [0, 0, 1, 1, 2, 2]
    assert {row["num_epochs"] for row in rows} == {2}
    assert rows[0]["cpu_s_per_image"] == pytest.approx(2 / 24)
    assert told[-1] == (6, 6)


def test_what_decoding_alone_gives_is_measured_around_ours(
    contest: Callable[..., Contest],
) -> None:
    slow = StorageConfig(name="slow", requests_per_s=1000.0)
    jobs = [job("group_1", "libjpeg"), job("group_1", "libjpeg", storage=slow), job()]
    with contest(jobs) as opened_contest:
        opened_contest.warm_up(lambda *_: None)
        rows = list(opened_contest.rows(1, lambda *_: None, measure_s=0.1, cold_cache=False, with_bound=True))
    assert [row["bound_images_per_s"] for row in rows] == [100.0, None, None]
    assert rows[0]["bound_cpu_s_per_image"] == 0.02


def test_peers_run_in_the_interpreter_that_is_given(
    contest: Callable[..., Contest], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_with: list[Any] = []

    class Noted(LoaderProcess):
        def __init__(self, name: str, python: str | None = None) -> None:
            opened_with.append((name, python))
            super().__init__(name)

    monkeypatch.setattr(interleave, "LoaderProcess", Noted)
    with contest([job("baseline", "libjpeg"), job()], peers_python="/other/python") as opened_contest:
        opened_contest.warm_up(lambda *_: None)
    assert sorted(opened_with) == [("baseline", None), ("image_folder_pil", "/other/python")]


@pytest.mark.parametrize(("request_number", "num_rows"), [(1, 2), (3, 3)])
def test_a_peer_that_fails_is_absent_from_then_on(
    request_number: int, num_rows: int, contest: Callable[..., Contest]
) -> None:
    jobs = [job("baseline", "libjpeg"), job()]
    with contest(jobs, {"image_folder_pil": request_number}) as opened_contest:
        opened_contest.warm_up(lambda *_: None)
        rows = list(opened_contest.rows(2, lambda *_: None, measure_s=0.1, cold_cache=False))
    assert opened_contest.failed == {"image_folder_pil": "image_folder_pil is tired"}
    assert len(rows) == num_rows


@pytest.mark.parametrize("request_number", [1, 2])
def test_ours_must_not_fail(request_number: int, contest: Callable[..., Contest]) -> None:
    with (
        contest([job("baseline", "libjpeg")], {"baseline": request_number}) as opened_contest,
        pytest.raises(LoaderError, match="baseline is tired"),
    ):
        opened_contest.warm_up(lambda *_: None)
        list(opened_contest.rows(1, lambda *_: None, measure_s=0.1, cold_cache=False))


def test_a_cold_measurement_says_what_stayed_cached(
    contest: Callable[..., Contest], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dropped: list[list[Path]] = []

    def drop(files: list[Path]) -> dict[Path, str]:
        dropped.append(files)
        return {files[0]: "in use"}

    monkeypatch.setattr(levels, "drop", drop)
    monkeypatch.setattr(levels, "resident_share_of", lambda _: 0.25)
    with contest([job("group_1", "libjpeg")]) as opened_contest:
        opened_contest.warm_up(lambda *_: None)
        rows = list(opened_contest.rows(2, lambda *_: None, measure_s=0.1, cold_cache=True))
    assert [row["cached_share"] for row in rows] == [0.25, 0.25]
    assert all(file.parent.name == "pcr" for file in dropped[0]) and len(dropped) == 2
    assert caplog.text.count(f"group_1: 1 of its {len(dropped[0])} files stayed in the page cache") == 1
    assert f"{dropped[0][0]}: in use" in caplog.text


def test_lanes_are_opened_once_per_loader_and_decoder(contest: Callable[..., Contest]) -> None:
    slow = StorageConfig(name="slow", requests_per_s=1000.0)
    jobs = [job("group_1", "libjpeg"), job("group_1", "libjpeg", storage=slow)]
    with contest(jobs) as opened_contest:
        opened_contest.warm_up(lambda *_: None)
        assert list(opened_contest._lanes) == [("group_1", "libjpeg", True, None)]
