"""CPU share of other processes, from fake counters, a fake /proc, and a real busy process."""

import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pcr_exp.system.machine import CpuReading, OthersCpu, others_share, read_cpu

START = CpuReading(own_s=100.0, busy_s=400.0, total_s=1000.0)


def after(**passed: float) -> CpuReading:
    return replace(START, **{key: getattr(START, key) + seconds for key, seconds in passed.items()})


@pytest.mark.parametrize(
    ("passed", "share"),
    [
        ({"total_s": 20, "busy_s": 12, "own_s": 12}, 0.0),
        ({"total_s": 20, "busy_s": 13, "own_s": 12}, 0.05),
        ({"total_s": 20, "busy_s": 20, "own_s": 5}, 0.75),
        ({"total_s": 20, "busy_s": 11.9, "own_s": 12}, 0.0),  # the kernel rounds the two differently
        ({"total_s": 0}, None),
    ],
)
def test_what_the_cpus_did_less_what_the_run_spent(passed: dict[str, float], share: float | None) -> None:
    assert others_share(START, after(**passed)) == (None if share is None else pytest.approx(share))


def test_others_within_a_limit_take_of_the_limit() -> None:
    """The limit is one core of eight: 2 of its 10 seconds are a fifth, but a fortieth of the machine."""
    before = replace(START, group_s=50.0, group_share=1 / 8)
    later = replace(before, own_s=106.0, busy_s=408.0, total_s=1080.0, group_s=58.0)
    assert others_share(before, later) == pytest.approx(0.2)
    assert others_share(before, replace(later, busy_s=446.0)) == pytest.approx(0.5), "the larger share counts"


class Counters:
    """CPU readings and a time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.busy_s = 0.0

    def __call__(self, roots: object) -> CpuReading:
        assert roots == [os.getpid()]
        return CpuReading(own_s=0.0, busy_s=self.busy_s, total_s=self.now_s)


def test_each_share_is_of_the_time_since_the_last_one() -> None:
    counters = Counters()
    others = OthersCpu(read=counters, now=lambda: counters.now_s)
    counters.now_s, counters.busy_s = 10.0, 5.0
    assert others.share() == pytest.approx(0.5)
    counters.now_s = 10.5
    assert others.share() is None, "too short to be told"
    counters.now_s, counters.busy_s = 12.0, 5.5
    assert others.share() == pytest.approx(0.25), "what was too short is in it"
    counters.now_s, counters.busy_s = 20.0, 13.5
    others.begin()
    counters.now_s = 22.0
    assert others.share() == 0.0


def test_without_the_kernels_counters_nothing_is_known() -> None:
    others = OthersCpu(read=lambda _roots: None)
    assert others.share() is None


def test_there_are_none_where_the_kernel_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "LINUX", False)
    assert read_cpu([os.getpid()]) is None


STAT = """cpu  3000 0 1000 6000 0 50 50 100 0 0
cpu0 1000 0 500 3000 0 25 25 50 0 0
cpu1 2000 0 500 3000 0 25 25 50 0 0
btime 1700000000
"""
"""In hundredths of a second: user, nice, system, idle, iowait, irq, softirq, steal."""


def process(folder: Path, pid: int, parent: int, *ticks: int) -> None:
    """Write a stat file; `ticks` are user, system, and both of ended children, in hundredths of a second."""
    (folder / str(pid)).mkdir()
    fields = [str(pid), "(a program)", "S", str(parent), *["0"] * 9, *map(str, ticks), *["0"] * 30]
    (folder / str(pid) / "stat").write_text(" ".join(fields))


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "proc"
    folder.mkdir()
    (folder / "stat").write_text(STAT)
    process(folder, 10, 1, 100, 50, 5, 5)
    process(folder, 11, 10, 200, 0, 0, 0)
    process(folder, 12, 11, 40, 0, 0, 0)
    process(folder, 20, 1, 1000, 0, 0, 0)
    process(folder, 30, 1, 30, 0, 0, 0)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(folder))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    return folder


def test_processes_below_the_run_are_its_own(proc: Path, tmp_path: Path) -> None:
    reading = read_cpu([10, 30, 99], tmp_path / "groups")
    assert reading == CpuReading(own_s=pytest.approx(4.3), busy_s=41.0, total_s=102.0), "99 has ended"
    assert proc.is_dir()


def test_cpus_are_told_apart_by_number_where_some_are_offline(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (proc / "stat").write_text(STAT.replace("cpu1", "cpu3"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3})
    reading = read_cpu([20], tmp_path / "groups")
    assert reading is not None and reading.busy_s == 25.5
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {8, 9})  # a container with two CPUs of its own
    both = read_cpu([20], tmp_path / "groups")
    assert both is not None and both.busy_s == 41.0
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {8})
    assert read_cpu([20], tmp_path / "groups") is None


def test_only_the_cpus_that_it_may_use_count(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})
    reading = read_cpu([20], tmp_path / "groups")
    assert reading is not None and proc.is_dir()
    assert (reading.busy_s, reading.total_s) == (15.5, 46.0)


def group(folder: Path, limit: str, usage: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.max").write_text(limit)
    (folder / "cpu.stat").write_text(usage)


def test_the_tightest_limit_on_the_run_counts(proc: Path, tmp_path: Path) -> None:
    (proc / "self").mkdir()
    (proc / "self" / "cgroup").write_text("1:cpu:/\n0::/pods/one\n")
    groups = tmp_path / "groups"
    group(groups / "pods" / "one", "max 100000", "usage_usec 1\n")
    assert read_cpu([10], groups) == read_cpu([10], tmp_path / "none"), "no limit"
    group(groups / "pods", "50000 100000", "usage_usec 7000000\nuser_usec 1\n")
    limited = read_cpu([10], groups)
    assert limited is not None and (limited.group_s, limited.group_share) == (7.0, 0.25)


def spin() -> None:
    while True:
        pass


def test_a_busy_process_is_the_runs_own_or_anothers() -> None:
    """The two views differ by the CPU time that it spends, whatever else is running."""
    child = multiprocessing.get_context("fork").Process(target=spin, daemon=True)
    child.start()
    try:
        owner, stranger = OthersCpu([os.getpid()]), OthersCpu([2**22 + 1])
        begun_s, before_s = time.monotonic(), sum(psutil.Process(child.pid).cpu_times()[:2])
        time.sleep(1.5)
        owned, seen = owner.share(), stranger.share()
        spent_s = sum(psutil.Process(child.pid).cpu_times()[:2]) - before_s
        possible_s = (time.monotonic() - begun_s) * len(os.sched_getaffinity(0))
    finally:
        child.kill()
        child.join()
    assert owned is not None and seen is not None and spent_s > 0
    assert seen - owned == pytest.approx(spent_s / possible_s, abs=0.06)
