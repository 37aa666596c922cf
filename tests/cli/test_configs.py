"""Every YAML file that a user can name composes as in its runner."""

import hydra
import pytest
from composing import SCHEMAS, compose

from pcr_exp.config.commands import FiguresConfig, TrainConfig
from pcr_exp.config.components import schemas
from pcr_exp.config.compose import load, prepare_hydra
from pcr_exp.config.related_methods import ActivationsConfig
from pcr_exp.config.scan_scripts import NUM_GROUPS
from pcr_exp.errors import ConfigError
from pcr_exp.places import CONFIGS

GROUPS = ("task", "scan", "storage", "loader", "echo", "activations", "tracking", "gradients", "network")


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


@pytest.mark.parametrize("runner", sorted(SCHEMAS))
def test_every_runner_composes_without_arguments(runner: str) -> None:
    assert compose(runner) is not None


def row_of_options(row: int) -> dict[str, str]:
    """Return option number `row`, counted cyclically, of every group, to compose them in one command."""
    return {group: options(group)[row % len(options(group))] for group in GROUPS}


def with_option(group: str, option: str) -> TrainConfig:
    chosen = row_of_options(options(group).index(option))
    config: TrainConfig = compose("train", *(f"{group}={option}" for group, option in chosen.items()))
    return config


@pytest.mark.parametrize("row", range(max(len(options(group)) for group in GROUPS)))
def test_every_option_composes(row: int) -> None:
    chosen = row_of_options(row)
    config = compose("train", *(f"{group}={option}" for group, option in chosen.items()))
    for group in ("scan", "storage", "network"):
        called = "group_10" if chosen[group] == "full" else chosen[group]
        assert getattr(config, group).name == called


def test_every_way_of_keeping_activations_composes() -> None:
    kept = {mode: with_option("activations", mode).activations for mode in options("activations")}
    names = {mode: config.name for mode, config in kept.items()}
    assert names.pop("error_bounded_paper") == names.pop("error_bounded_sz") == "error_bounded"
    modes = ("none", "lossless", "error_bounded", "recompute", "injected_errors")
    assert names == {name: name for name in modes}
    assert kept["error_bounded_paper"].error_model == "paper"
    assert kept["none"] == ActivationsConfig()


def test_there_is_an_option_for_every_scan_group() -> None:
    levels = {"baseline", "full", *(f"group_{group}" for group in range(1, NUM_GROUPS + 1))}
    assert set(options("scan")) - schemas("scan").keys() == levels
    for group in range(1, NUM_GROUPS + 1):
        assert with_option("scan", f"group_{group}").scan.group == group


def test_there_is_an_option_for_every_gradient_codec() -> None:
    names = {with_option("gradients", option).gradients.name for option in options("gradients")}
    assert names == {*schemas("gradients")}


def test_the_number_of_processes_is_what_torchrun_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert compose("train").world_size == 1
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert compose("train").world_size == 4


def test_the_wrong_schema_is_refused() -> None:
    prepare_hydra(commands={"figures": FiguresConfig})
    with (
        hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"),
        pytest.raises(ConfigError, match="the configuration is a FiguresConfig; wanted a TrainConfig"),
    ):
        load(hydra.compose("figures"), TrainConfig)
