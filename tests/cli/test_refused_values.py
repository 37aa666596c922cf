"""Values that cannot work are refused when a configuration is composed, by their keys."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from composing import compose

from pcr_exp.errors import ConfigError


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("scan.group=0", r"scan.group=0: wanted a scan group, 1\.\.10"),
        ("scan.group=11", r"scan.group=11: wanted a scan group, 1\.\.10"),
        ("scan.encoding=raw", "scan.encoding='raw': wanted pcr or baseline"),
        ("storage.bandwidth_mib_per_s=0", r"storage.bandwidth_mib_per_s=0.0: wanted a rate above 0"),
        ("storage.requests_per_s=-1", r"storage.requests_per_s=-1.0: wanted a rate above 0"),
        ("storage.latency_ms=-1", "storage.latency_ms=-1.0: wanted 0 or more"),
        ("storage.seek_ms=-1", "storage.seek_ms=-1.0: wanted 0 or more"),
        ("storage.reads_in_flight=0", "storage.reads_in_flight=0: wanted null or 1 to 512, a thread each"),
        ("dataset.images_per_record=0", "dataset.images_per_record=0: wanted at least 1"),
        ("dataset.targets.top1=80", r"dataset.targets.top1=80.0: wanted a share in \(0, 1\]"),
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
        ("loader.lanes=0", "loader.lanes=0: wanted at least 1"),
        ("loader.records_ahead=0", "loader.records_ahead=0: wanted null or at least 1"),
        ("loader.prefetch_batches=0", "loader.prefetch_batches=0: wanted at least 1"),
        ("loader.decode=fast", "loader.decode='fast': wanted"),
        ("echo.name=often", "echo.name='often': wanted batch, example_after, example_before, none"),
        ("echo=batch echo.factor=0.5", "echo.factor=0.5: wanted a number of uses, 1 or more"),
        ("echo=batch echo.factor=inf", "echo.factor=inf: wanted a number of uses"),
        ("echo=batch echo.factor=nan", "echo.factor=nan: wanted a number of uses"),
        ("echo=example_after echo.buffer=0", "echo.buffer=0: wanted at least 1"),
        ("echo.factor=2", "echo.factor=2.0: wanted 1 with echo=none"),
        ("echo.buffer=64", "echo.buffer=64: wanted 1 with echo=none.* echo=example_before echo.factor=1"),
        ("echo=batch echo.buffer=64", "echo.buffer=64: wanted 1 with echo=batch"),
        (
            "echo=example_after echo.repeat_groups=[10]",
            r"echo.repeat_groups=\[10\]: wanted none with echo=example_after",
        ),
        ("echo=example_before echo.repeat_groups=[11]", r"echo.repeat_groups=\[11\]: wanted scan groups"),
        (
            "echo=example_before echo.factor=3 echo.repeat_groups=[5,2]",
            r"echo.repeat_groups=\[5, 2\]: wanted scan groups in 1..10, each higher",
        ),
        (
            "echo=example_before echo.factor=2 echo.repeat_groups=[5,10]",
            r"echo.repeat_groups=\[5, 10\]: wanted at most one group per repeat, and echo.factor=2 makes 1",
        ),
        ("training.epochs=0", "training.epochs=0: wanted at least 1"),
        (
            "training.eval_groups=[same]",
            r"training.eval_groups=\['same'\]: wanted \[full\], and same or renewed behind it",
        ),
        ("training.log_every_steps=0", "training.log_every_steps=0: wanted at least 1"),
        ("training.checkpoint_every_steps=0", "training.checkpoint_every_steps=0: wanted null or at least 1"),
        ("training.checkpoint_every_steps=-5", "training.checkpoint_every_steps=-5: wanted null or at"),
        ("training.num_threads=0", "training.num_threads=0: wanted null or at least 1"),
        ("training.global_batch_size=0", "training.global_batch_size=0: wanted null or a multiple of"),
        ("training.global_batch_size=100", "training.global_batch_size=100: wanted null or a multiple of"),
        ("training.learning_rate=inf", "training.learning_rate=inf: wanted a number above 0"),
        ("training.weight_decay=-1", "training.weight_decay=-1.0: wanted 0 or more"),
        ("training.lr_gamma=0", r"training.lr_gamma=0.0: wanted a factor in \(0, 1\]"),
        ("training.lr_milestones=[0]", r"training.lr_milestones=\[0\]: wanted rising numbers of epochs"),
        ("training.lr_milestones=[9,3]", r"training.lr_milestones=\[9, 3\]: wanted rising numbers of epochs"),
        (
            "training.input_sizes=[999]",
            r"training.input_sizes=\[999\]: wanted sides from 1 to training.image",
        ),
        (
            "training.input_sizes=[16,32]",
            r"training.input_milestones=\[\]: wanted rising numbers of epochs, one less than",
        ),
        (
            "training.input_sizes=[16,32,32] training.input_milestones=[4,2]",
            r"training.input_milestones=\[4, 2\]: wanted rising numbers of epochs",
        ),
        ("training.warmup_epochs=inf", "training.warmup_epochs=inf: wanted 0 or more"),
        ("training.optimizer=adam", "training.optimizer='adam': wanted sgd or adamw"),
        (
            "training.optimizer=adamw training.nesterov=true",
            "training.nesterov=True: wanted false with training.optimizer=adamw",
        ),
        (
            "training.nesterov=true training.momentum=0",
            "training.momentum=0.0: wanted above 0 with training.nesterov=true",
        ),
        ("training=paper dataset.paper.epochs=0", "training.epochs=0: wanted at least 1"),
        (
            "training=paper dataset.paper.learning_rate=0",
            "training.learning_rate=0.0: wanted a number above 0",
        ),
        ("world_size=0", "world_size=0: wanted at least 1"),
        ("world_size=3", "loader.lanes=8: wanted a multiple of 3.*such as 9"),
        ("loader.lanes=6 training.global_batch_size=256", "loader.lanes=6: wanted a multiple of 4"),
        ("training.learning_rate=0", "training.learning_rate=0.0: wanted a number above 0"),
        ("training.momentum=1", r"training.momentum=1.0: wanted in \[0, 1\)"),
        ("training.label_smoothing=1", r"training.label_smoothing=1.0: wanted in \[0, 1\)"),
        ("training.warmup_epochs=-1", "training.warmup_epochs=-1.0: wanted 0 or more"),
        ("training.schedule=linear", "training.schedule='linear': wanted step or cosine or constant"),
        ("activations.codec=zfp", "activations.codec='zfp': wanted quantise or sz"),
        (
            "activations=error_bounded activations.codec=sz",
            "activations.codec='sz': wanted the codec of these settings; activations=error_bounded_sz",
        ),
        ("activations.interval=0", "activations.interval=0: wanted at least 1"),
        ("gradients.name=gzip", "gradients.name='gzip': wanted .*fp16, .*threelc"),
        (
            "gradients.name=threelc",
            "gradients: .threelc. with the settings of GradientsConfig",
        ),
        ("gradients.mode=ring", "gradients.mode='ring': wanted ddp or server"),
        (
            "gradients=threelc gradients.sparsity=0.99",
            r"sparsity=0.99: wanted a number in \[1, 2\)",
        ),
        ("gradients=threelc gradients.sparsity=2", r"gradients.sparsity=2.0: wanted a number in \[1, 2\)"),
        (
            "gradients=threelc gradients.sparsity=1.99999999",
            "sparsity=1.99999999: wanted a number in",
        ),
        ("gradients=topk gradients.fraction=0", r"gradients.fraction=0.0: wanted a share in \(0, 1\]"),
        ("gradients=powersgd gradients.rank=0", "gradients.rank=0: wanted at least 1"),
        ("gradients.min_values=-1", "gradients.min_values=-1: wanted 0 or more"),
        ("network.bandwidth_mbit_per_s=0", "network.bandwidth_mbit_per_s=0.0: wanted a rate above 0"),
        ("network.latency_ms=-1", "network.latency_ms=-1.0: wanted 0 or more"),
        ("world_size=0", "world_size=0: wanted at least 1"),
        ("tracking.name=mlflow", "tracking.name='mlflow': wanted none or wandb"),
        ("tracking.mode=later", "tracking.mode='later': wanted offline or online"),
        ("+dataset.typo=5", "unknown configuration key: .*typo"),
        ("+typo=5", "unknown configuration key: .*typo"),
        ("model=torchvision", "model.name"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_key(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose("train", *override.split())


def test_powersgd_has_no_server() -> None:
    with pytest.raises(ConfigError, match=r"gradients\.mode='server': wanted ddp: PowerSGD needs sums"):
        compose("train", "gradients=powersgd", "gradients.mode=server")


@pytest.mark.parametrize(
    ("runner", "override", "message"),
    [
        ("quality", "split=test", "split='test': wanted train or tune or val"),
        ("quality", "groups=[0]", r"groups=\[0\]: wanted scan groups, 1\.\.10"),
        ("quality", "max_images=0", "max_images=0: wanted at least 1"),
        ("quality", "decodes=[fast]", r"decodes=\['fast'\]: wanted libjpeg or unsmoothed or scaled"),
        ("quality", "crop_size_px=16", "crop_size_px=16: wanted at least 32"),
        ("figures", "target=60", r"target=60.0: wanted a share in \(0, 1\], or null"),
        ("figures", "compare=loader.decode", "reference=None: wanted a value of loader.decode"),
        ("quality", "num_workers=0", "num_workers=0: wanted at least 1"),
        ("activation_study", "bounds=[0]", r"bounds=\[0.0\]: wanted one value or more, each above 0"),
        ("activation_study", "batch_sizes=[]", r"batch_sizes=\[\]: wanted one value or more"),
        (
            "activation_study",
            "training.batch_size=8",
            "batch_sizes=.*: wanted at most training.batch",
        ),
        ("demo", "labels=[]", r"labels=\[\]: wanted at least one label"),
        ("demo", "scans=[group_1]", "scans=.*: wanted scan levels with baseline among them"),
        ("demo", "baseline_share=1", r"baseline_share=1.0: wanted a share in \(0, 1\)"),
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
        compose(runner, *override.split())


_COUNTS = re.compile(
    r"(^|_)(num|max|every|epochs?|steps?|batch|size|px|pixels|images?|repeats|lanes|records|interval)(_|$)"
)
_ZERO_MEANS_SOMETHING = {
    "loader.num_workers",  # decode in the training process
    "training.warmup_epochs",  # none
    "gradients.min_values",
    "scan.first_epoch",
    "storage.seek_ms",
}


def test_no_count_size_or_frequency_may_be_zero_or_negative() -> None:
    """Every whole number of every runner's configuration whose name counts something, set to 0 and -1."""
    refused = []
    for runner, overrides in (
        ("train", []),
        ("train", ["dataset=imagenet", "scan=cosine", "activations=error_bounded"]),
        ("train", ["scan=plateau", "storage=hdd"]),
        ("train", ["scan=mssim"]),
        ("train", ["scan=balanced"]),
        ("prepare", []),
        ("quality", []),
        ("throughput", []),
        ("demo", []),
        ("activation_study", []),
        ("evaluate", []),
    ):
        for key, owner, name in whole_numbers(compose(runner, *overrides)):
            # The paper's recipe is checked where training= copies from it.
            checked_elsewhere = key.startswith("dataset.paper.") or key in _ZERO_MEANS_SOMETHING
            if _COUNTS.search(name) and not checked_elsewhere:
                for value in (0, -1):
                    with pytest.raises(ConfigError, match=re.escape(f"={value}: wanted")):
                        dataclasses.replace(owner, **{name: value})
                refused.append(key)
    assert len(set(refused)) > 20, sorted(set(refused))


def whole_numbers(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """(dotted key, its owner, its name) of all settings that are whole numbers, or may be."""
    for name, hint in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if dataclasses.is_dataclass(value):
            yield from whole_numbers(value, f"{prefix}{name}.")
        elif hint in (int, int | None):
            yield prefix + name, config, name
