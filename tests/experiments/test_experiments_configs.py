"""Every YAML file that a user can name, composed as its runner composes it."""

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from pcr_exp.config.compose import RUNNER_SCHEMAS, load, register
from pcr_exp.config.records import NUM_GROUPS
from pcr_exp.config.runners import TrainConfig
from pcr_exp.config.scan import SCAN_SCHEMAS
from pcr_exp.errors import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"
RUNNER_OF_EXPERIMENT = {
    "mssim_vs_scan": "quality",
    "throughput_vs_scan": "throughput",
    "throughput_model": "throughput",
}
"""Experiments of another runner than `train`."""


def composed(runner: str, *overrides: str) -> Any:
    register()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return load(compose(runner, overrides=list(overrides)), RUNNER_SCHEMAS[runner])


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


@pytest.mark.parametrize("runner", sorted(RUNNER_SCHEMAS))
def test_every_runner_composes_without_arguments(runner: str) -> None:
    assert composed(runner) is not None


@pytest.mark.parametrize("experiment", options("experiment"))
def test_every_experiment_composes_and_says_what_it_is(experiment: str) -> None:
    runner = RUNNER_OF_EXPERIMENT.get(experiment, "train")
    assert composed(runner, f"experiment={experiment}") is not None
    text = (CONFIGS / "experiment" / f"{experiment}.yaml").read_text()
    for heading in ("# Command ", "# Expect ", "# Cost "):
        assert heading in text, f"{experiment}.yaml is a lab note: it lacks '{heading.strip()}'"


@pytest.mark.parametrize(
    ("group", "option"),
    [(group, option) for group in ("scan", "storage", "loader", "tracking") for option in options(group)],
)
def test_every_option_composes(group: str, option: str) -> None:
    config: TrainConfig = composed("train", f"{group}={option}")
    if group in ("scan", "storage"):
        assert getattr(config, group).name == option


def test_there_is_an_option_for_every_scan_group() -> None:
    levels = {"baseline", *(f"group_{group}" for group in range(1, NUM_GROUPS + 1))}
    assert set(options("scan")) - SCAN_SCHEMAS.keys() == levels
    for group in range(1, NUM_GROUPS + 1):
        assert composed("train", f"scan=group_{group}").scan.group == group


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("scan.group=0", r"scan.group=0: wanted a scan group, 1\.\.10"),
        ("scan.group=11", r"scan.group=11: wanted a scan group, 1\.\.10"),
        ("scan.encoding=raw", "scan.encoding='raw': wanted pcr or baseline"),
        ("storage.bandwidth_mib_per_s=0", r"storage.bandwidth_mib_per_s=0.0: wanted a rate above 0"),
        ("storage.requests_per_s=-1", r"storage.requests_per_s=-1.0: wanted a rate above 0"),
        ("storage.latency_ms=-1", "storage.latency_ms=-1.0: wanted 0 or more"),
        ("dataset.images_per_record=0", "dataset.images_per_record=0: wanted at least 1"),
        ("dataset.target_top1=80", r"dataset.target_top1=80.0: wanted a share in \(0, 1\]"),
        ("dataset.max_val_images=0", "dataset.max_val_images=0: wanted null or at least 1"),
        ("dataset.num_train=0", "dataset.num_train=0: wanted at least 1"),
        ("dataset.size_px=32", "dataset.size_px=32: wanted at least 64"),
        ("dataset.quality=101", r"dataset.quality=101: wanted a JPEG quality, 1\.\.100"),
        ("dataset.version=1", "dataset.version=1: wanted 2, the one that this release makes"),
        ("dataset.augment.crop_scale=[0.5]", r"dataset.augment.crop_scale=\[0.5\]: wanted two numbers"),
        (
            "dataset.augment.crop_scale=[0.5,0.1]",
            "dataset.augment.crop_scale=.*: wanted 0 < low <= high <= 1",
        ),
        ("dataset.augment.crop_ratio=[0,1]", "dataset.augment.crop_ratio=.*: wanted 0 < low <= high"),
        ("dataset.augment.eval_crop_fraction=2", "eval_crop_fraction=2.0: wanted a share"),
        ("records.on_error=ignore", "records.on_error='ignore': wanted fail or skip"),
        ("records.num_workers=0", "records.num_workers=0: wanted at least 1"),
        ("loader.num_workers=-1", "loader.num_workers=-1: wanted 0 or more"),
        ("loader.shuffle_records=0", "loader.shuffle_records=0: wanted at least 1"),
        ("loader.records_ahead=0", "loader.records_ahead=0: wanted null or at least 1"),
        ("loader.prefetch_batches=0", "loader.prefetch_batches=0: wanted at least 1"),
        ("loader.decode=fast", "loader.decode='fast': wanted"),
        ("training.epochs=0", "training.epochs=0: wanted at least 1"),
        ("training.learning_rate=0", "training.learning_rate=0.0: wanted above 0"),
        ("training.momentum=1", r"training.momentum=1.0: wanted in \[0, 1\)"),
        ("training.label_smoothing=1", r"training.label_smoothing=1.0: wanted in \[0, 1\)"),
        ("training.warmup_epochs=-1", "training.warmup_epochs=-1.0: wanted 0 or more"),
        ("training.schedule=linear", "training.schedule='linear': wanted step or cosine or constant"),
        ("tracking.name=mlflow", "tracking.name='mlflow': wanted none or wandb"),
        ("tracking.mode=later", "tracking.mode='later': wanted offline or online"),
        ("+dataset.typo=5", "unknown configuration key: .*typo"),
        ("+typo=5", "unknown configuration key: .*typo"),
        ("model=torchvision", "model.name"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_key(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        composed("train", override)


@pytest.mark.parametrize(
    ("runner", "override", "message"),
    [
        ("quality", "split=test", "split='test': wanted train or val"),
        ("quality", "groups=[0]", r"groups=\[0\]: wanted scan groups, 1\.\.10"),
        ("quality", "max_images=0", "max_images=0: wanted at least 1"),
        ("quality", "decodes=[fast]", r"decodes=\['fast'\]: wanted libjpeg or unsmoothed or scaled"),
        ("quality", "crop_size_px=16", "crop_size_px=16: wanted at least 32"),
        ("figures", "target_top1=60", r"target_top1=60.0: wanted an accuracy in \(0, 1\], or null"),
        ("figures", "compare=loader.decode", "reference=None: wanted a value of loader.decode"),
        ("quality", "num_workers=0", "num_workers=0: wanted at least 1"),
        ("demo", "labels=[]", r"labels=\[\]: wanted at least one label"),
        ("demo", "scans=[group_1]", "scans=.*: wanted scan levels with baseline among them"),
        (
            "prepare",
            "dataset=ham10000 dataset.split=patient",
            "dataset.split='patient': wanted lesion or file",
        ),
        (
            "prepare",
            "dataset=ham10000 dataset.val_fraction=1",
            r"dataset.val_fraction=1.0: wanted a share in",
        ),
        (
            "prepare",
            "dataset=celebahq dataset.val_fraction=0",
            r"dataset.val_fraction=0.0: wanted a share in",
        ),
        ("prepare", "dataset=folder dataset.val_fraction=0", r"dataset.val_fraction=0.0: wanted a share in"),
    ],
)
def test_the_other_runners_refuse_too(runner: str, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        composed(runner, *override.split())


def test_the_wrong_schema_is_refused() -> None:
    register()
    with (
        initialize_config_dir(str(CONFIGS), version_base="1.3"),
        pytest.raises(ConfigError, match="the configuration is a FiguresConfig; wanted a TrainConfig"),
    ):
        load(compose("figures"), TrainConfig)
