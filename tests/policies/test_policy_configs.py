"""Scan policies as written on a command line, and settings refused by key."""

import pytest
from composing import compose

from pcr_exp.config.components import schemas
from pcr_exp.config.scan import ScanConfig
from pcr_exp.errors import ConfigError
from pcr_exp.policies.smallest import CosineConfig
from pcr_exp.runs.identity import run_id

POLICIES = schemas("scan")


@pytest.mark.parametrize("name", sorted(POLICIES.keys() - {"static"}))
def test_a_policy_is_an_option_of_its_own_class_and_names_its_runs(name: str) -> None:
    config = compose("train", f"scan={name}")
    assert type(config.scan) is POLICIES[name]
    assert config.scan.name == name
    assert f"-{name}-" in run_id(config, "")


@pytest.mark.parametrize("name", sorted(POLICIES.keys() - {"static"}))
def test_the_file_says_what_the_class_says(name: str) -> None:
    """Both contain the defaults, so that either can be read alone."""
    written = compose("train", f"scan={name}").scan
    floor = {"floor": written.floor} if name == "balanced" else {}
    assert written == POLICIES[name](name=name, group=written.group, **floor)


def test_a_floor_is_any_other_scan() -> None:
    assert compose("train", "scan=balanced").scan.floor == ScanConfig(name="group_1", group=1)
    config = compose("train", "scan=balanced", "scan@scan.floor=cosine", "scan.floor.threshold=0.9").scan
    assert isinstance(config.floor, CosineConfig)
    assert (config.floor.threshold, config.floor.name, config.name) == (0.9, "cosine", "balanced")
    assert run_id(compose("train", "scan=balanced"), "") != run_id(
        compose("train", "scan=balanced", "scan@scan.floor=group_2"), ""
    )


def test_settings_change_the_run() -> None:
    ids = {
        run_id(compose("train", "scan=cosine", *override), "")
        for override in ([], ["scan.threshold=0.7"], ["seed=1"])
    }
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("scan=mssim scan.threshold=0", r"scan.threshold=0.0: wanted a mean MS-SSIM in \(0, 1\]"),
        ("scan=mssim scan.threshold=1.1", r"scan.threshold=1.1: wanted a mean MS-SSIM in \(0, 1\]"),
        ("scan=mssim scan.num_images=0", "scan.num_images=0: wanted at least 1"),
        ("scan=cosine scan.threshold=1", r"scan.threshold=1.0: wanted a cosine in \[-1, 1\)"),
        ("scan=cosine scan.threshold=-2", r"scan.threshold=-2.0: wanted a cosine in \[-1, 1\)"),
        ("scan=cosine scan.every_epochs=0", "scan.every_epochs=0: wanted at least 1"),
        ("scan=cosine scan.num_images=0", "scan.num_images=0: wanted at least 1"),
        ("scan=cosine scan.first_epoch=-1", "scan.first_epoch=-1: wanted 0 or more"),
        ("scan=plateau scan.tolerance=-0.1", "scan.tolerance=-0.1: wanted a share of 0 or more"),
        ("scan=plateau scan.min_drop=1", r"scan.min_drop=1.0: wanted a share in \[0, 1\)"),
        ("scan=plateau scan.patience_epochs=0", "scan.patience_epochs=0: wanted at least 1"),
        ("scan=plateau scan.trial_steps=0", "scan.trial_steps=0: wanted at least 1"),
        ("scan=plateau scan.judge=test", "scan.judge='test': wanted train or tune"),
        ("scan=plateau scan.judge=val", "scan.judge='val': wanted train or tune .val is for reporting"),
        ("scan=cosine scan.candidates=[0,5]", r"scan.candidates=\[0, 5\]: wanted scan groups .* 1\.\.10"),
        ("scan=cosine scan.candidates=[]", r"scan.candidates=\[\]: wanted scan groups .* at least one"),
        ("scan=cosine scan.candidates=[5,11]", r"scan.candidates=\[5, 11\]: wanted scan groups .* 1\.\.10"),
        ("scan=cosine scan.candidates=[5,2]", r"scan.candidates=\[5, 2\]: wanted every scan group once"),
        ("scan=cosine scan.candidates=[5,5]", r"scan.candidates=\[5, 5\]: wanted every scan group once"),
        ("scan=cosine scan.encoding=baseline scan.group=1", "scan.encoding='baseline': wanted pcr"),
        ("scan=mixture scan.group=3", r"scan.group=3: wanted one of \[1, 2, 5, 10\]"),
        ("scan=mixture scan.weights=[0,1]", r"scan.weights=\[0.0, 1.0\]: wanted .* the first above 0"),
        ("scan=mixture scan.weights=[1,-1]", r"scan.weights=\[1.0, -1.0\]: wanted finite weights"),
        ("scan=mixture scan.weights=[]", r"scan.weights=\[\]: wanted finite weights"),
        ("scan=schedule scan.groups=[2,11]", r"scan.groups=\[2, 11\]: wanted scan groups"),
        (
            "scan=schedule scan.milestones=[5]",
            r"scan.milestones=\[5\]: wanted .* one fewer than",
        ),
        ("scan=schedule scan.milestones=[5,5,9]", r"scan.milestones=\[5, 5, 9\]: wanted rising epochs"),
        ("scan=schedule scan.milestones=[0,5,9]", r"scan.milestones=\[0, 5, 9\]: .* from 1 on"),
        (
            "scan=balanced scan@scan.floor=baseline",
            "scan.floor='baseline': wanted a scan group of prog",
        ),
        ("scan=balanced scan@scan.floor=balanced", "scan.floor='balanced': wanted .* another policy"),
        ("scan=balanced scan@scan.floor=mssim scan.floor.threshold=2", "scan.threshold=2.0: wanted a mean"),
        ("scan=balanced scan.every_steps=0", "scan.every_steps=0: wanted at least 1"),
        ("scan=balanced scan.headroom=-1", "scan.headroom=-1.0: wanted a share of 0 or more"),
        ("scan=balanced scan.max_slowdown=1", r"scan.max_slowdown=1.0: wanted a share in \(0, 1\)"),
        ("scan=balanced scan.group=2 scan.candidates=[1,5]", r"scan.group=2: wanted one of \[1, 5\]"),
        ("scan=group_5 +scan.threshold=0.9", "unknown configuration key: .*threshold"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_by_its_key(overrides: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose("train", *overrides.split())
