"""Every YAML file of these groups composes, and has the numbers that its name promises."""

import multiprocessing
import threading
from multiprocessing.connection import wait
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pcr_exp.config.compose import load
from pcr_exp.config.loader import MAX_TIMEOUT_S, LoaderConfig, StorageConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.errors import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"
SCHEMAS = {"storage": StorageConfig, "scan": ScanConfig, "loader": LoaderConfig}
# Files with a schema of their own are composed in their policies' tests, where all groups are available.
FILES = sorted(
    (group, file.stem)
    for group in SCHEMAS
    for file in (CONFIGS / group).glob("*.yaml")
    if "_schema" not in file.read_text()
)


def read(group: str, name: str) -> StorageConfig | ScanConfig | LoaderConfig:
    with initialize_config_dir(str(CONFIGS / group), version_base="1.3"):
        node = compose(name)
    return load(OmegaConf.merge(OmegaConf.structured(SCHEMAS[group]), node), SCHEMAS[group])


@pytest.mark.parametrize(("group", "name"), FILES)
def test_every_file_fits_its_schema(group: str, name: str) -> None:
    config = read(group, name)
    if not isinstance(config, LoaderConfig):
        assert config.name == name


def test_disks_seek_and_networks_have_latency() -> None:
    """No preset has both, and the time that a lone read takes has not changed."""
    times = {name: read("storage", name) for group, name in FILES if group == "storage"}
    assert {name for name, config in times.items() if config.seek_ms} == {"hdd"}
    assert (times["hdd"].seek_ms, times["hdd"].latency_ms) == (8, 0)
    waiting = {name: config.latency_ms for name, config in times.items() if config.latency_ms}
    assert waiting == {"ceph_400": 5, "gigabit_nfs": 1, "sata_ssd": 0.1, "wan_100mbit": 40}


def test_scan_groups() -> None:
    assert {name for group, name in FILES if group == "scan"} == {
        *("baseline", "full"),
        *(f"group_{g}" for g in range(1, 11)),
    }
    for g in range(1, 11):
        config = read("scan", f"group_{g}")
        assert (config.encoding, config.group) == ("pcr", g)
    baseline = read("scan", "baseline")
    assert (baseline.encoding, baseline.group) == ("baseline", 1)


def test_debug_loader_differs_from_the_default_in_nothing_but_workers() -> None:
    default, debug = read("loader", "default"), read("loader", "debug")
    assert debug.num_workers == 0
    debug.num_workers = default.num_workers
    assert debug == default


def test_decode_takes_three_names() -> None:
    for mode in ("libjpeg", "unsmoothed", "scaled"):
        assert LoaderConfig(decode=mode).decode == mode
    with pytest.raises(ConfigError, match=r"loader\.decode='fast': wanted libjpeg or unsmoothed or scaled"):
        LoaderConfig(decode="fast")


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("bandwidth_mib_per_s", value) for value in (0, -1, 0.0, NAN, INF)),
        *(("requests_per_s", value) for value in (0, -1, NAN, INF)),
        *(("latency_ms", value) for value in (-0.1, NAN, INF)),
        *(("seek_ms", value) for value in (-0.1, NAN, INF)),
        *(("reads_in_flight", value) for value in (0, -1, 513)),
    ],
)
def test_rates_that_cannot_work_are_refused_by_name(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"storage\.{key}={value!r}: wanted"):
        StorageConfig(name="test", **{key: value})


@pytest.mark.parametrize("timeout_s", [0, -5, NAN, INF, MAX_TIMEOUT_S + 1])
def test_a_timeout_that_cannot_work_is_refused(timeout_s: float) -> None:
    with pytest.raises(ConfigError, match=rf"loader\.timeout_s={timeout_s!r}: wanted seconds above 0"):
        LoaderConfig(timeout_s=timeout_s)


def test_the_longest_timeout_can_be_waited_for() -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    sender.send(1)
    assert wait([receiver], MAX_TIMEOUT_S) == [receiver]
    assert threading.Lock().acquire(timeout=MAX_TIMEOUT_S)
