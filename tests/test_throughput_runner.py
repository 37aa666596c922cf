"""`python -m experiments.throughput`, from its configuration to its figures."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from experiments.launch import CONFIGS
from experiments.throughput import throughput
from pcr_exp.config import ThroughputConfig, load, register
from pcr_exp.errors import ConfigError, RunError


def composed(*overrides: str) -> ThroughputConfig:
    register()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return load(compose("throughput", overrides=list(overrides)), ThroughputConfig)


def test_drawing_needs_a_measurement(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no whole measurement"):
        throughput(composed("measure=false", f"out={tmp_path}"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("repeats=0", "repeats=0: wanted at least 1"),
        ("batch_size=0", "batch_size=0: wanted at least 1"),
        ("image_size=0", "image_size=0: wanted at least 1"),
        ("measure_s=0", r"measure_s=0.0: wanted seconds above 0"),
        ("model_images_per_s=-1", r"model_images_per_s=-1.0: wanted null or a rate above 0"),
        ("bandwidths_mib_per_s=[5,0]", r"bandwidths_mib_per_s=\[5.0, 0.0\]: wanted limits above 0"),
        ("latencies_ms=[-1]", r"latencies_ms=\[-1.0\]: wanted limits above 0"),
        ("requests_per_s=[0]", r"requests_per_s=\[0.0\]: wanted limits above 0"),
        ("on_error=ignore", "on_error='ignore': wanted fail or skip"),
    ],
)
def test_values_that_cannot_work(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        composed(override)


def test_a_loader_is_needed() -> None:
    with pytest.raises(ConfigError, match="at least one loader"):
        composed("scans=[]", "peers=[]")


def test_defaults_ask_for_every_scan_level_and_peer() -> None:
    config = composed()
    assert config.scans == ["baseline", "group_1", "group_2", "group_5", "group_10"]
    assert len(config.peers) == 7
    assert config.out == "results/throughput/photos"
