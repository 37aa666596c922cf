"""Two configurations share a run if and only if they would learn the same."""

import copy
import gzip
import json
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from pcr_exp.activations.quantise import QuantiseConfig
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.scan_scripts import ScanOfScriptConfig, ScanScriptConfig
from pcr_exp.loading.echo.variants import BatchEchoConfig
from pcr_exp.runs import identity as identity_module
from pcr_exp.runs.identity import differences, identity, run_id, scientific_part, without_defaults
from pcr_exp.system.keys import key_of

REPO = Path(__file__).parents[2]
IMAGES = "0123456789abcdef"

WITHOUT_EFFECT = {
    *(
        "dataset.root",
        "loader.num_workers",
        "loader.prefetch_batches",
        "loader.records_ahead",
        "loader.timeout_s",
        "storage.reads_in_flight",
        "storage.cache",
        "storage.cache_mib",
        "runs_root",
        "components",
        "smoke",
        "note",
        "dry_run",
    ),
    *(
        "training.log_every_steps",
        "training.checkpoint_every_steps",
        "training.device",
        "training.exclusive",
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
    if value is None:
        return 7
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [*value, 1]
    if isinstance(value, dict):
        return {key: another(entry) for key, entry in value.items()}
    if value == "classification":
        return "auc"  # only an existing task has a primary metric
    return "another"


def test_every_key_counts_unless_it_cannot_change_what_is_learned(configure: Any) -> None:
    # Several processes that send codes to each other; otherwise gradients= and network= have no effect.
    config = configure(world_size=2, gradients__name="threelc")
    before = run_id(config, IMAGES)
    keys = leaves(config)
    assert len(keys) > 70
    keys.remove("records.scans.scans")  # a list of scans: tests/config/test_scan_scripts.py
    for key in keys:
        changed = copy.deepcopy(config)
        *groups, name = key.split(".")
        owner: Any = changed
        for group in groups:
            owner = getattr(owner, group)
        setattr(owner, name, another(getattr(owner, name)))
        ignored = key in WITHOUT_EFFECT or key.startswith(("records.", "tracking.", "dataset.paper."))
        ignored &= key != "records.codec"
        assert (run_id(changed, IMAGES) == before) is ignored, key


def test_another_scan_script_is_another_run_of_a_name_that_says_so(configure: Any) -> None:
    dc = ScanOfScriptConfig(components=[0, 1, 2], Ss=0, Se=0)
    ac = [ScanOfScriptConfig(components=[component], Ss=1, Se=63) for component in range(3)]
    config = configure()
    plain = run_id(config, IMAGES)
    config.records.scans = ScanScriptConfig(name="four", scans=[dc, *ac])
    first = run_id(config, IMAGES)
    assert first.split("-")[3] == "group_5_of_four" and plain.split("-")[3] == "group_5"
    config.records.scans = ScanScriptConfig(name="four", scans=[dc, *reversed(ac)])
    assert len({plain, first, run_id(config, IMAGES)}) == 3
    assert scientific_part(asdict(config))["records"] == {"codec": config.records.scans.script.id}


def test_the_name_is_readable(configure: Any) -> None:
    config = configure(dataset__name="my photos/2", seed=3)
    words = run_id(config, IMAGES).split("-")
    assert words[:-1] == ["my_photos_2", "photo", "tiny", "group_5", "unlimited", "s3"]
    assert len(words[-1]) == 8


@pytest.mark.parametrize(
    ("group", "value"),
    [
        ("echo", BatchEchoConfig(factor=2)),
        ("activations", QuantiseConfig()),
    ],
)
def test_a_group_that_came_later_is_named_once_it_does_something(
    configure: Any, group: str, value: Any
) -> None:
    config: TrainConfig = configure()
    setattr(config, group, value)
    assert run_id(config, IMAGES).split("-")[4:-1] == ["unlimited", value.name, "s0"]


def test_other_images_are_another_run_wherever_they_lie(configure: Any) -> None:
    name = run_id(configure(), IMAGES)
    assert run_id(configure(dataset__root="/elsewhere", records__root="/rB"), IMAGES) == name
    other = run_id(configure(), "fedcba9876543210")
    assert other != name
    assert other.split("-")[:-1] == name.split("-")[:-1]


def test_other_numerics_are_another_run(configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = run_id(configure(), IMAGES)
    monkeypatch.setattr(identity_module, "NUMERICS", identity_module.NUMERICS + 1)
    assert run_id(configure(), IMAGES) != name


def test_a_preset_that_was_overridden_is_not_called_by_its_name(configure: Any) -> None:
    limited = configure(storage__bandwidth_mib_per_s=8.0, storage__latency_ms=40.0)
    assert run_id(limited, IMAGES).split("-")[3:5] == ["group_5", "8mibps_40ms"]
    assert run_id(configure(scan__group=2), IMAGES).split("-")[3] == "group_2"
    network = {"network__name": "100mbit", "network__bandwidth_mbit_per_s": 80.0}
    assert run_id(configure(world_size=2, **network), IMAGES).split("-")[6] == "80mbitps"


def test_the_setting_of_committed_runs_does_not_move() -> None:
    """Their names end in the key that identifies their setting in tables and for future runs."""
    paths = (REPO / "results").rglob("runs/runs.json.gz")
    sets = [json.loads(gzip.decompress(path.read_bytes())) for path in paths]
    committed = {run_id: run for runs in sets for run_id, run in runs.items()}
    assert len(committed) >= 343
    for name, run in committed.items():
        images = run["manifest"]["images_key"]
        part = identity(run["config"], images) if images else scientific_part(run["config"])
        assert key_of(part) == name[-8:], name


def test_looking_at_the_group_of_training_too_is_another_run(configure: Any) -> None:
    before = asdict(configure())
    assert before["training"].pop("eval_groups") == ["full"]
    assert scientific_part(before) == scientific_part(asdict(configure()))
    both = configure(training__eval_groups=["full", "same"])
    assert run_id(both, IMAGES) != run_id(configure(), IMAGES)


def test_runs_with_the_filter_are_others_than_those_from_before_it(configure: Any) -> None:
    before = asdict(configure())
    assert before["loader"].pop("antialias")
    filtered, unfiltered = (configure(loader__antialias=value) for value in (True, False))
    assert scientific_part(before) == scientific_part(asdict(unfiltered))
    assert scientific_part(before) != scientific_part(asdict(filtered))
    assert run_id(filtered, IMAGES) != run_id(unfiltered, IMAGES)


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


def test_runs_of_one_process_have_no_use_for_a_network(configure: Any) -> None:
    config = configure(gradients__name="threelc", network__latency_ms=1.0)
    assert run_id(config, IMAGES) == run_id(configure(), IMAGES)
    assert scientific_part(asdict(config)).keys().isdisjoint({"gradients", "network", "world_size"})


def test_how_many_processes_share_a_batch_is_no_science(configure: Any) -> None:
    two, one = configure(world_size=2), configure(training__batch_size=32)
    assert identity(asdict(two), IMAGES)["training"]["global_batch_size"] == 32
    different = differences(identity(asdict(two), IMAGES), identity(asdict(one), IMAGES))
    assert different == ["training.batch_size"]  # the images that batch norm sees together
    for sent in ({"gradients__name": "fp16"}, {"gradients__mode": "server"}, {"network__latency_ms": 1.0}):
        assert identity(asdict(configure(world_size=2, **sent)), IMAGES)["world_size"] == 2


def test_the_name_of_a_run_of_several_processes(configure: Any) -> None:
    config = configure(world_size=4, gradients__name="threelc", gradients__mode="server", network__name="lan")
    words = run_id(config, IMAGES).split("-")[4:-1]
    assert words == ["unlimited", "threelc_server_x4", "lan_unlimited", "s0"]


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


def test_a_fold_is_another_run_that_says_so(configure: Any) -> None:
    plain = configure()
    folds = [configure(dataset__num_folds=5, dataset__fold=fold) for fold in (0, 1)]
    ids = [run_id(config, IMAGES) for config in (plain, *folds)]
    assert [name.partition("-photo-")[0] for name in ids] == [
        "photos",
        "photos-fold_0_of_5",
        "photos-fold_1_of_5",
    ]
    assert len({name.rpartition("-")[2] for name in ids}) == 3


def test_with_folds_the_share_that_is_held_out_without_them_does_not_count(configure: Any) -> None:
    config = asdict(configure(dataset__num_folds=5, dataset__fold=0))
    shares = [{**config, "dataset": {**config["dataset"], "val_fraction": share}} for share in (0.2, 0.3)]
    assert identity(shares[0], IMAGES) == identity(shares[1], IMAGES)
    for settings in shares:
        settings["dataset"] |= {"num_folds": None, "fold": None}
    assert identity(shares[0], IMAGES) != identity(shares[1], IMAGES)


def test_other_weights_to_begin_with_are_another_run(configure: Any, tmp_path: Path) -> None:
    """Even if the file has the same name."""
    weights = tmp_path / "pre.pt"
    config = configure(model__weights=str(weights))
    ids = []
    for content in (b"one", b"two", b"one"):
        weights.write_bytes(content)
        ids.append(run_id(config, IMAGES))
    assert ids[0] == ids[2] != ids[1]
