"""Two configurations share a run exactly if the same would be learned."""

import copy
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import pytest
from omegaconf import OmegaConf

from pcr_exp.config.activations import ActivationsConfig
from pcr_exp.config.echo import EchoConfig
from pcr_exp.config.runners import TrainConfig
from pcr_exp.runs.identity import differences, run_id, scientific_part, without_defaults

WITHOUT_EFFECT = {
    *(
        "dataset.root",
        "loader.num_workers",
        "loader.prefetch_batches",
        "loader.records_ahead",
        "loader.timeout_s",
        "storage.reads_in_flight",
        "runs_root",
    ),
    *(
        "training.log_every_steps",
        "training.checkpoint_every_steps",
        "training.device",
        "training.num_threads",
    ),
}


def leaves(config: object, prefix: str = "") -> list[str]:
    names = [f.name for f in fields(config)]  # type: ignore[arg-type]
    found: list[str] = []
    for name in names:
        value = getattr(config, name)
        found += leaves(value, f"{prefix}{name}.") if is_dataclass(value) else [f"{prefix}{name}"]
    return found


def another(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [*value, 1]
    return "another"


def test_every_key_counts_unless_it_cannot_change_what_is_learned(configure: Any) -> None:
    # Of several processes: one alone has no use for gradients= and network=.
    config = configure(world_size=2)
    before = run_id(config)
    keys = leaves(config)
    assert len(keys) > 70
    for key in keys:
        changed = copy.deepcopy(config)
        *groups, name = key.split(".")
        owner: Any = changed
        for group in groups:
            owner = getattr(owner, group)
        setattr(owner, name, another(getattr(owner, name)))
        ignored = key in WITHOUT_EFFECT or key.startswith(("records.", "tracking.", "dataset.paper."))
        assert (run_id(changed) == before) is ignored, key


def test_the_name_is_readable(configure: Any) -> None:
    config = configure(scan__name="my scan/2", seed=3)
    words = run_id(config).split("-")
    assert words[:-1] == ["photos", "photo", "shufflenet_v2_x0_5", "my_scan_2", "unlimited", "s3"]
    assert len(words[-1]) == 8


@pytest.mark.parametrize(
    ("group", "value"),
    [
        ("echo", EchoConfig(name="batch", factor=2)),
        ("activations", ActivationsConfig(name="error_bounded")),
    ],
)
def test_a_group_that_came_later_is_named_once_it_does_something(
    configure: Any, group: str, value: Any
) -> None:
    config: TrainConfig = configure()
    setattr(config, group, value)
    assert run_id(config).split("-")[4:-1] == ["unlimited", value.name, "s0"]


def test_runs_from_before_a_group_keep_their_names(configure: Any) -> None:
    """The id of this configuration was computed by the version that knew none of these keys."""
    config = configure(loader__antialias=False)
    assert run_id(config) == "photos-photo-shufflenet_v2_x0_5-group_5-unlimited-s0-79f5b08f"
    before = asdict(config)
    del before["echo"], before["activations"], before["loader"]["antialias"]
    assert scientific_part(before) == scientific_part(asdict(config))


def test_runs_with_the_filter_are_others_than_those_from_before_it(configure: Any) -> None:
    before = asdict(configure())
    assert before["loader"].pop("antialias")
    filtered, unfiltered = (configure(loader__antialias=value) for value in (True, False))
    assert scientific_part(before) == scientific_part(asdict(unfiltered))
    assert scientific_part(before) != scientific_part(asdict(filtered))
    assert run_id(filtered) != run_id(unfiltered)


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"a": 1, "b": {"x": 0, "y": [1]}}, {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ({"b": {"x": 0, "y": [2]}}, {"b": {"y": [2]}}),
        ({"b": {"x": 0, "y": [1], "older": 3}}, {"b": {"older": 3}}),
        ({"b": {"x": 1}}, {"b": {"x": 1}}),
    ],
)
def test_added_keys_with_their_defaults_are_left_out(config: dict[str, Any], kept: dict[str, Any]) -> None:
    before = copy.deepcopy(config)
    assert without_defaults(config, {"b": {"x": 0, "y": [1]}}) == kept
    assert config == before


def test_runs_of_one_process_are_called_what_they_were_before_there_were_several(configure: Any) -> None:
    config = configure(gradients__name="threelc", network__latency_ms=1.0)
    assert run_id(config) == run_id(configure())
    assert scientific_part(asdict(config)).keys().isdisjoint({"gradients", "network", "world_size"})


def test_the_name_of_a_run_of_several_processes(configure: Any) -> None:
    config = configure(world_size=4, gradients__name="threelc", gradients__mode="server", network__name="lan")
    assert run_id(config).split("-")[4:-1] == ["unlimited", "threelc_server_x4", "lan", "s0"]


def test_a_written_configuration_is_the_same_science(configure: Any) -> None:
    config: TrainConfig = configure(training__weight_decay=1e-5, training__learning_rate=1.0)
    written = OmegaConf.to_yaml(OmegaConf.create(asdict(config)))
    read = OmegaConf.to_container(OmegaConf.create(written))
    assert scientific_part(read) == scientific_part(asdict(config))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 2, "d": 3}}, ["a.b", "a.c", "a.d"]),
        ({"a": {"b": 1}}, {"a": 1}, ["a"]),
    ],
)
def test_differences_are_dotted_keys(one: dict[str, Any], other: dict[str, Any], found: list[str]) -> None:
    assert differences(one, other) == found
