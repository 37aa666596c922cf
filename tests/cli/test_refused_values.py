"""Composing refuses values that cannot work; errors name the key, the value, and what is wanted."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from composing import SCHEMAS, compose
from hydra.core.override_parser.overrides_parser import OverridesParser

from pcr_exp.errors import ConfigError, SettingError

REFUSED = {
    "a scan group, 1..10": ["scan.group=0", "scan.group=11"],
    "pcr or baseline": ["scan.encoding=raw"],
    "a rate above 0": [
        "storage.bandwidth_mib_per_s=0",
        "storage.requests_per_s=-1",
        "network.bandwidth_mbit_per_s=0",
    ],
    "0 or more": [
        "seed=-1",
        "tolerance seed=-1",
        "storage.latency_ms=-1",
        "storage.seek_ms=-1",
        "loader.num_workers=-1",
        "training.weight_decay=-1",
        "training.warmup_epochs=inf",
        "training.warmup_epochs=-1",
        "gradients.min_values=-1",
        "network.latency_ms=-1",
    ],
    "null or 1 to 512, a thread each": ["storage.reads_in_flight=0"],
    "at least 1": [
        "dataset.images_per_record=0",
        "dataset.num_train=0",
        "records.num_workers=0",
        "loader.shuffle_records=0",
        "loader.lanes=0",
        "loader.prefetch_batches=0",
        "echo=example_after echo.buffer=0",
        "training.epochs=0",
        "training.log_every_steps=0",
        "world_size=0",
        "activations.interval=0",
        "gradients=powersgd gradients.rank=0",
        "quality max_images=0",
        "quality num_workers=0",
    ],
    "a share in (0, 1]": [
        "dataset.targets.top1=80",
        "dataset.augment.eval_crop_fraction=2",
        "gradients=topk gradients.fraction=0",
    ],
    "null or at least 1": [
        "dataset.max_val_images=0",
        "loader.records_ahead=0",
        "training.checkpoint_every_steps=0",
        "training.checkpoint_every_steps=-5",
        "training.num_threads=0",
    ],
    "at least 64": ["dataset.size_px=32"],
    "a JPEG quality, 1..100": ["dataset.quality=101"],
    "2, the version of this release": ["dataset.version=1"],
    "two numbers": ["dataset.augment.crop_scale=[0.5]"],
    "0 < low <= high <= 1": ["dataset.augment.crop_scale=[0.5,0.1]"],
    "0 < low <= high": ["dataset.augment.crop_ratio=[0,1]"],
    "fail or skip": ["records.on_error=ignore"],
    "libjpeg or unsmoothed or scaled": ["loader.decode=fast", "quality decodes=[fast]"],
    "batch, example_after, example_before, none": ["echo.name=often"],
    "a number of uses, 1 or more": [
        "echo=batch echo.factor=0.5",
        "echo=batch echo.factor=inf",
        "echo=batch echo.factor=nan",
    ],
    "1 with echo=none": ["echo.factor=2"],
    "echo=example_before echo.factor=1": ["echo.buffer=64"],
    "1 with echo=batch": ["echo=batch echo.buffer=64"],
    "none with echo=example_after": ["echo=example_after echo.repeat_groups=[10]"],
    "scan groups in 1..10, each higher": [
        "echo=example_before echo.repeat_groups=[11]",
        "echo=example_before echo.factor=3 echo.repeat_groups=[5,2]",
    ],
    "at most one group per repeat; echo.factor=2 allows 1": [
        "echo=example_before echo.factor=2 echo.repeat_groups=[5,10]"
    ],
    "[full], optionally followed by same and renewed": ["training.eval_groups=[same]"],
    "null or a multiple of": ["training.global_batch_size=0", "training.global_batch_size=100"],
    "a number above 0": ["training.learning_rate=inf", "training.learning_rate=0"],
    "a factor in (0, 1]": ["training.lr_gamma=0"],
    "rising numbers of epochs, each at least 1": [
        "training.lr_milestones=[0]",
        "training.lr_milestones=[9,3]",
    ],
    "sides from 1 to training.image": ["training.input_sizes=[999]"],
    "rising numbers of epochs": ["training.input_sizes=[16,32,32] training.input_milestones=[4,2]"],
    "sgd or adamw": ["training.optimizer=adam"],
    "false with training.optimizer=adamw": ["training.optimizer=adamw training.nesterov=true"],
    "above 0 with training.nesterov=true": ["training.nesterov=true training.momentum=0"],
    "in [0, 1)": ["training.momentum=1", "training.label_smoothing=1"],
    "step or cosine or constant": ["training.schedule=linear"],
    "quantise or sz": ["activations.codec=zfp"],
    "the codec that has these settings; an option such as activations=error_bounded_sz": [
        "activations=error_bounded activations.codec=sz"
    ],
    "fp16, int8, none, onebit, powersgd, ternary_stochastic, threelc": ["gradients.name=gzip"],
    "ddp or server": ["gradients.mode=ring"],
    "a number in [1, 2)": [
        "gradients=threelc gradients.sparsity=0.99",
        "gradients=threelc gradients.sparsity=2",
        "gradients=threelc gradients.sparsity=1.99999999",
    ],
    "none or wandb": ["tracking.name=mlflow"],
    "offline or online": ["tracking.mode=later"],
    "1 to 128 characters without": [
        "tracking.project=a:b",
        "tracking.project=''",
        f"tracking.project={'a' * 129}",
    ],
    "tags of 1 to 64 characters each": ["tracking.tags=['']", f"tracking.tags=[a,{'b' * 65}]"],
    "train or tune or val": ["quality split=test"],
    "scan groups, 1..10": ["quality groups=[0]"],
    "scan levels: baseline, or group_1 to": [
        "throughput scans=[full]",
        "throughput scans=[baseline,group_11]",
    ],
    "some of libjpeg, unsmoothed, scaled": ["throughput decodes=[fast]"],
    "some of image_folder_pil,": ["throughput peers=[foo]"],
    "at least 32": ["quality crop_size_px=16"],
    "a share in (0, 1], or null": ["figures target=60"],
    "one value or more, each above 0": ["activation_study bounds=[0]", "activation_study batch_sizes=[]"],
    "null, or compare=<key> with it": ["figures reference=libjpeg"],
    "at least one label": ["demo labels=[]"],
    "scan levels with baseline among them": ["demo scans=[group_1]"],
    "a share in (0, 1)": [
        "demo baseline_share=1",
        "prepare dataset=ham10000 dataset.val_fraction=1",
        "prepare dataset=celebahq dataset.val_fraction=0",
        "prepare dataset=folder dataset.val_fraction=0",
    ],
    "lesion or file": ["prepare dataset=ham10000 dataset.split=patient"],
}
"""Overrides whose last one is refused, by what is wanted. The command is `train` unless it comes first."""
ELSEWHERE = [
    (
        "training.input_sizes=[16,32]",
        "training.input_milestones",
        [],
        "rising numbers of epochs, one fewer than",
    ),
    ("training=paper dataset.paper.epochs=0", "training.epochs", 0, "at least 1"),
    ("training=paper dataset.paper.learning_rate=0", "training.learning_rate", 0.0, "a number above 0"),
    ("world_size=3", "loader.lanes", 8, "a multiple of 3.*such as 9"),
    ("loader.lanes=6 training.global_batch_size=256", "loader.lanes", 6, "a multiple of 4"),
    ("figures compare=loader.decode", "reference", None, "a value of loader.decode"),
    ("+dataset.targets.accuracy=0.9", "dataset.targets.accuracy", 0.9, "metric of a task .*: .*auc, .*top1"),
    ("activation_study training.batch_size=8", "batch_sizes", [4, 16, 64], "at most training.batch"),
]
"""Overrides that make another setting invalid: its key, its value, and what is wanted."""


def refused(typed: str) -> SettingError:
    words = typed.split()
    command = words.pop(0) if words[0] in SCHEMAS else "train"
    with pytest.raises(SettingError) as found:
        compose(command, *words)
    return found.value


@pytest.mark.parametrize(
    ("typed", "wanted"), [(one, wanted) for wanted in REFUSED for one in REFUSED[wanted]]
)
def test_a_value_that_cannot_work_is_refused_by_its_key(typed: str, wanted: str) -> None:
    error = refused(typed)
    override = OverridesParser.create().parse_override(typed.split()[-1])
    assert error.key == override.key_or_group and wanted in error.wanted
    assert error.given == override.value() or "nan" in typed
    assert str(error) == f"{error.key}={error.given!r}: wanted {error.wanted}."


@pytest.mark.parametrize(("typed", "key", "given", "wanted"), ELSEWHERE)
def test_a_value_that_another_does_not_suit_is_refused(typed: str, key: str, given: Any, wanted: str) -> None:
    error = refused(typed)
    assert (error.key, error.given) == (key, given) and re.search(wanted, error.wanted)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("gradients.name=threelc", "gradients: .threelc. is not an option with settings of GradientsConfig"),
        ("+dataset.typo=5", "unknown configuration key: .*typo"),
        ("+typo=5", "unknown configuration key: .*typo"),
        ("model=torchvision", "model.name"),
    ],
)
def test_a_key_that_is_not_known_or_missing_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose("train", override)


def test_powersgd_has_no_server() -> None:
    with pytest.raises(ConfigError, match=r"gradients\.mode='server': wanted ddp: PowerSGD needs sums"):
        compose("train", "gradients=powersgd", "gradients.mode=server")


_COUNTS = re.compile(
    r"(^|_)(num|max|every|epochs?|steps?|batch|size|px|pixels|images?|repeats|lanes|records|interval)(_|$)"
)
_ZERO_MEANS_SOMETHING = {
    "loader.num_workers",  # 0 decodes in the training process
    "training.warmup_epochs",  # 0 is no warm-up
    "gradients.min_values",
    "scan.first_epoch",
    "storage.seek_ms",
}


def test_no_count_size_or_frequency_may_be_zero_or_negative() -> None:
    """Integer settings whose names denote a count refuse 0 and -1, except where 0 has a meaning."""
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
            # training= checks the paper's recipe when it copies from it.
            checked_elsewhere = key.startswith("dataset.paper.") or key in _ZERO_MEANS_SOMETHING
            if _COUNTS.search(name) and not checked_elsewhere:
                for value in (0, -1):
                    with pytest.raises(ConfigError, match=re.escape(f"={value}: wanted")):
                        dataclasses.replace(owner, **{name: value})
                refused.append(key)
    assert len(set(refused)) > 20, sorted(set(refused))


def whole_numbers(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield (dotted key, owner, name) of all integer settings, including optional ones."""
    for name, hint in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if dataclasses.is_dataclass(value):
            yield from whole_numbers(value, f"{prefix}{name}.")
        elif hint in (int, int | None):
            yield prefix + name, config, name
