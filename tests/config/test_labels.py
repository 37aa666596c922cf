"""Labels state what was run: a preset with overridden values is called by its numbers."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pcr_exp.config.compose import prepare_hydra
from pcr_exp.config.describe import (
    changed,
    network_label,
    network_slug,
    preset,
    scan_label,
    scan_slug,
    storage_label,
    storage_slug,
    values_of,
)
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.related_methods import NetworkConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.places import CONFIGS

REPO = Path(__file__).parents[2]
SCHEMAS = {"storage": StorageConfig, "scan": ScanConfig, "network": NetworkConfig}


@pytest.fixture(autouse=True, scope="module")
def hydra() -> Iterator[None]:
    prepare_hydra()
    with initialize_config_dir(str(REPO / "configs"), version_base="1.3"):
        yield


def composed(command: str) -> Any:
    """Compose one group alone, such as `scan=mssim scan.threshold=0.9`."""
    group, _, _ = command.partition("=")
    config = compose(overrides=f"+{command}".split())[group]
    if not OmegaConf.get_type(config) or OmegaConf.get_type(config) is dict:
        config = OmegaConf.merge(OmegaConf.structured(SCHEMAS[group]), config)
    return OmegaConf.to_object(config)


CALLED = [
    ("storage=unlimited", "unlimited", "unlimited"),
    ("storage=unlimited +storage.bandwidth_mib_per_s=8", "8 MiB/s", "8mibps"),
    ("storage=wan_100mbit", "wan_100mbit (11.92 MiB/s, 40 ms)", "wan_100mbit"),
    ("storage=wan_100mbit storage.bandwidth_mib_per_s=8", "8 MiB/s, 40 ms", "8mibps_40ms"),
    (
        "storage=wan_100mbit storage.name=slow_disk storage.latency_ms=0",
        "slow_disk (11.92 MiB/s)",
        "slow_disk_11.92mibps",
    ),
    ("storage=unlimited storage.name=mine", "mine (unlimited)", "mine_unlimited"),
    ("storage=unlimited storage.name=hdd +storage.requests_per_s=100", "100 requests/s", "100rps"),
    (
        "storage=ceph_400 storage.bandwidth_mib_per_s=null storage.latency_ms=0",
        "unlimited",
        "unlimited",
    ),
    ("storage=halving", "halving (10 MiB/s, x 0.5 from 60 s, x 1 from 120 s)", "halving"),
    (
        "storage=halving storage.changes_s=[5,9]",
        "10 MiB/s, x 0.5 from 5 s, x 1 from 9 s",
        "10mibps_x0.5from5s_x1from9s",
    ),
    ("storage=unlimited +storage.cold_cache=true", "unlimited, cold cache", "unlimited_cold"),
    ("network=unlimited", "unlimited", "unlimited"),
    ("network=100mbit", "100mbit (100 Mbit/s)", "100mbit"),
    ("network=100mbit +network.latency_ms=1", "100 Mbit/s, 1 ms", "100mbitps_1ms"),
    ("scan=group_5", "group_5", "group_5"),
    ("scan=group_5 scan.group=2", "group_2", "group_2"),
    ("scan=baseline", "baseline", "baseline"),
    ("scan=mssim", "mssim", "mssim"),
    ("scan=mssim scan.threshold=0.9", "mssim (threshold=0.9)", "mssim_threshold_0.9"),
    (
        "scan=schedule scan.groups=[2,5] scan.milestones=[10]",
        "schedule (groups=[2,5], milestones=[10])",
        "schedule_groups_2_5_milestones_10",
    ),
    ("scan=balanced", "balanced", "balanced"),
    ("scan=balanced scan@scan.floor=mssim", "balanced (floor=mssim)", "balanced_floor_mssim"),
    (
        "scan=cosine scan.candidates=[1,2,10] scan.num_images=8 scan.every_epochs=1",
        "cosine (candidates=[1,2,10], every_epochs=1, num_images=8)",
        "cosine_changed",
    ),
]
LABELS = {
    "storage": (storage_label, storage_slug),
    "network": (network_label, network_slug),
    "scan": (scan_label, scan_slug),
}


@pytest.mark.parametrize(("command", "label", "slug"), CALLED)
def test_settings_are_called_by_their_numbers(command: str, label: str, slug: str) -> None:
    """A composed configuration and one that is read from a run have the same labels."""
    to_label, to_slug = LABELS[command.partition("=")[0]]
    config = composed(command)
    assert (to_label(config), to_slug(config)) == (label, slug)
    written: Any = OmegaConf.to_container(
        OmegaConf.create(OmegaConf.to_yaml(OmegaConf.create(asdict(config))))
    )
    assert (to_label(written), to_slug(written)) == (label, slug)


def test_four_storages_of_one_name_have_four_labels() -> None:
    """Labels distinguish four storages, all named slow_disk, of committed figures."""
    configs: list[dict[str, Any]] = [
        {"name": "slow_disk", "bandwidth_mib_per_s": rate, "latency_ms": 0.0, "requests_per_s": None}
        for rate in (7.0, 1.1, 2.8, 2.0)
    ]
    assert [storage_label(config) for config in configs] == [
        *("slow_disk (7 MiB/s)", "slow_disk (1.1 MiB/s)", "slow_disk (2.8 MiB/s)", "slow_disk (2 MiB/s)")
    ]


def test_a_configuration_from_before_a_key_has_its_default() -> None:
    before = {"name": "unlimited", "bandwidth_mib_per_s": None, "latency_ms": 0.0, "requests_per_s": None}
    assert storage_label(before) == "unlimited"


@pytest.mark.parametrize("group", sorted(SCHEMAS))
def test_every_committed_option_is_its_own_preset(group: str) -> None:
    names = sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))
    assert len(names) >= 4
    for name in names:
        assert changed(group, values_of(group, composed(f"{group}={name}"))) == {}, name


@pytest.mark.parametrize("name", ["mine", "", "../storage/hdd"])
def test_another_name_is_no_preset(name: str) -> None:
    assert preset("storage", name) is None
    assert changed("storage", values_of("storage", StorageConfig(name=name))) is None
