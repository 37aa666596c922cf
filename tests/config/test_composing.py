"""The tests' fast way to compose gives what users get."""

import composing
import pytest
from hydra.errors import HydraException

from pcr_exp.config import compose
from pcr_exp.config.commands import TrainConfig
from pcr_exp.errors import ConfigError


@pytest.mark.parametrize(
    ("runner", "overrides"),
    [
        ("train", "training=paper training.batch_size=512 scan=balanced scan@scan.floor=cosine seed=3"),
        ("train", "scan.floor.threshold=0.9 scan@scan.floor=cosine scan=balanced dataset.label=make"),
        ("prepare", "dataset=cars dataset.augment.crop_scale=[0.1,1] records.num_workers=2"),
    ],
)
def test_the_quick_way_gives_what_the_slow_way_gives(runner: str, overrides: str) -> None:
    for _ in range(2):  # the second time from the cache
        slow = compose.compose(runner, composing.SCHEMAS[runner], *overrides.split())
        assert composing.compose(runner, *overrides.split()) == slow


@pytest.mark.parametrize(
    "overrides", ["training.typo=1", "+training.typo=1", "+training.epochs=1", "scan=group_11", "seed=x"]
)
def test_the_quick_way_refuses_what_the_slow_way_refuses(overrides: str) -> None:
    said = []
    for way, first in ((composing.compose, ["train"]), (compose.compose, ["train", TrainConfig])):
        with pytest.raises((ConfigError, HydraException)) as error:
            way(*first, *overrides.split())
        said.append((error.type, str(error.value)))
    assert said[0] == said[1]


def test_a_value_that_cannot_be_found_is_told_in_a_line() -> None:
    with pytest.raises(ConfigError, match=r"^the configuration cannot be used: .*nothing.*$"):
        compose.compose("train", TrainConfig, "seed=${nothing}")
