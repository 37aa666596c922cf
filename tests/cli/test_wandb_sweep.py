"""Files for `wandb sweep` describe the same jobs as a grid with `-m`."""

import re

import pytest
import yaml

from pcr_exp.cli.sweep import main, wandb_sweep
from pcr_exp.errors import ConfigError


def test_the_grid_of_an_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    main(["wandb", "experiment=time_to_accuracy", "seed=range(2)", "storage=hdd"])
    made = yaml.safe_load(capsys.readouterr().out)
    assert made["parameters"] == {
        "dataset.label": {"values": ["photo", "focus"]},
        "scan": {"values": ["baseline", "group_1", "group_2", "group_5", "group_10"]},
        "seed": {"values": ["0", "1"]},
    }
    assert (made["method"], made["name"], made["project"]) == ("grid", "time_to_accuracy", "pcr-exp")
    assert made["command"] == [
        *("${env}", "python", "-m", "experiments.train"),
        *("experiment=time_to_accuracy", "storage=hdd", "hydra.mode=RUN", "tracking=wandb_online"),
        "${args_no_hyphens}",
    ]


def test_what_is_typed_goes_before_what_the_experiment_says() -> None:
    made = wandb_sweep(["experiment=time_to_accuracy", "scan=group_1", "seed=7", "tracking=wandb"])
    assert list(made["parameters"]) == ["dataset.label"]
    assert made["command"][4:-1] == [
        *("experiment=time_to_accuracy", "scan=group_1", "seed=7", "tracking=wandb", "hydra.mode=RUN"),
    ]


def test_one_job_is_no_grid() -> None:
    with pytest.raises(ConfigError, match=r"scan=group_1: this is one job, not a grid\. Give an experiment"):
        wandb_sweep(["scan=group_1"])
    with pytest.raises(ConfigError, match=r"^no arguments: this is one job, not a grid"):
        wandb_sweep([])


@pytest.mark.parametrize(
    ("typed", "words"),
    [("scan=group_1", "this is one job, not a grid"), ("scan=[1,2", "no viable alternative|mismatched")],
)
def test_what_was_typed_wrongly_is_said_without_a_traceback(
    typed: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["wandb", typed])
    assert ended.value.code == 1
    assert re.search(words, capsys.readouterr().err)
