"""`dataset=mixture`: training on two sources at two scan groups, through the commands."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from composing import compose
from gloo_processes import spawned
from storage_http_server import range_server

from pcr_exp.cli.evaluate import evaluate
from pcr_exp.cli.prepare import prepare
from pcr_exp.cli.quality import quality
from pcr_exp.cli.throughput import throughput
from pcr_exp.cli.tolerance import tolerance
from pcr_exp.cli.train import plan, train
from pcr_exp.config.commands import TrainConfig
from pcr_exp.errors import ConfigError, RecordError
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.index_table import read_index
from pcr_exp.runs.follow import share_of_state
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.predictions import read_predictions
from pcr_exp.runs.rows import Row, deterministic_part, read_rows
from pcr_exp.runs.session import COUNTED
from pcr_exp.runs.train_run import run_training
from pcr_exp.storage.local import LocalStorage
from pcr_exp.training.columns import COLUMNS, source_columns, with_declared
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("light_figures")

SMALL = ["training=debug", "training.num_threads=1", "training.learning_rate=0.001", "loader.num_workers=0"]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Records of embedded photographs labelled by photograph; 48 training images in `many`, 32 in `few`."""
    root = tmp_path_factory.mktemp("sources")
    places = {}
    for name, num_train, num_val in (("many", 48, 12), ("few", 32, 20)):
        settings = [
            *("dataset=photos", f"dataset.name={name}", f"dataset.root={root / name}"),
            *("dataset.tune_fraction=0", "dataset.size_px=64", "dataset.images_per_record=8"),
            *(f"dataset.num_train={num_train}", f"dataset.num_val={num_val}"),
            *(f"records.root={root / 'records'}", "records.num_workers=1"),
        ]
        prepare(compose("prepare", *settings))
        (places[name],) = (root / "records").glob(f"{name}-*")
    return places


@pytest.fixture
def mixed(places: dict[str, Path], tmp_path: Path) -> list[str]:
    """An epoch of 48 images takes 36 of `many` at group 2 and 12 of `few` at group 5."""
    return [
        *("dataset=mixture", "dataset.epoch=48", *SMALL, "training.epochs=2", "scan=group_5"),
        f"+dataset.sources.many.root={places['many']}",
        *("+dataset.sources.many.share=3", "+dataset.sources.many.group=2"),
        *("+dataset.sources.many.label=photo", "+dataset.sources.few.label=photo"),
        f"+dataset.sources.few.root={places['few']}",
        *("+dataset.sources.few.share=1", f"runs_root={tmp_path / 'runs'}"),
    ]


def rows_of(config: TrainConfig) -> tuple[Path, list[Row]]:
    folder = run_training(config, progress=False).folder
    return folder, read_rows(folder / "rows.jsonl", with_declared(source_columns(["many", "few"])))


def index_of(folder: Path, split: str = "train", encoding: str = "pcr") -> RecordIndex:
    return read_index(LocalStorage(folder), f"{split}/{encoding}")


def test_rows_count_each_source(mixed: list[str], places: dict[str, Path]) -> None:
    """The counts are exact: images follow the shares, and a record's bytes count once per epoch and pass."""
    folder, rows = rows_of(compose("train", *mixed))
    for row in (row for row in rows if row["kind"] == "train"):
        assert row["images_of_many"] + row["images_of_few"] == row["samples_seen"]
        assert row["record_bytes_of_many"] + row["record_bytes_of_few"] == row["record_bytes"]
        assert row["images_of_many"] == pytest.approx(0.75 * row["samples_seen"], abs=1)
    evaluated = [row for row in rows if row["kind"] == "eval"]
    assert [(row["images_of_many"], row["images_of_few"]) for row in evaluated] == [(36, 12), (72, 24)]
    assert [(row["val_images_of_many"], row["val_images_of_few"]) for row in evaluated] == [(12, 20)] * 2
    assert {row["num_val"] for row in evaluated} == {32}
    # Every record has its own lane. The second epoch ends a pass over `many` and starts the next one.
    many, few = index_of(places["many"]).epoch_bytes(2), index_of(places["few"]).epoch_bytes(5)
    assert [row["record_bytes_of_many"] for row in evaluated] == [many, 3 * many]
    assert [row["record_bytes_of_few"] for row in evaluated] == [few, 2 * few]
    manifest = read_manifest(folder / "manifest.json")
    assert (manifest.num_train, manifest.num_val, manifest.num_classes) == (80, 32, 8)
    assert manifest.dataset_facts is None and manifest.mean_prefix_bytes is None and manifest.quality == []
    predicted = read_predictions(folder.parent)
    last = predicted[predicted["epoch"] == 2]
    assert last["image"].nunique() == 32 and last["correct"].mean() == evaluated[-1]["val_top1"]
    assert run_training(compose("train", *mixed), progress=False).status == "skipped"


@pytest.mark.parametrize(
    ("step", "scan"), [(2, ["scan=group_5"]), (7, ["scan=mixture", "scan.group=5", "scan.weights=[2,1]"])]
)
def test_a_run_goes_on_in_mid_epoch(
    mixed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, scan: list[str]
) -> None:
    mixed = [*mixed, *scan]
    _, whole = rows_of(compose("train", *mixed))
    elsewhere = [*mixed, f"runs_root={tmp_path / 'other'}"]
    update = Trainer.update

    def interrupted(self: Trainer, *given: Any, **named: Any) -> float:
        if named["step"] == step:
            os.kill(os.getpid(), signal.SIGINT)
        return update(self, *given, **named)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Trainer, "update", interrupted)
        run_training(compose("train", *elsewhere), progress=False)
    _, rows = rows_of(compose("train", *elsewhere, "loader.num_workers=1"))
    columns = with_declared(source_columns(["many", "few"]))
    assert deterministic_part(rows, columns) == deterministic_part(whole, columns)
    assert len(rows) == 14


def train_rows(_processes: Processes, config: TrainConfig) -> str:
    return str(run_training(config, progress=False).folder)


@pytest.mark.program
def test_two_processes_count_together(mixed: list[str]) -> None:
    config = compose("train", *mixed, "world_size=2", "loader.lanes=8")
    folders = spawned(train_rows, 2, config)
    rows = read_rows(Path(folders[0]) / "rows.jsonl", with_declared(source_columns(["many", "few"])))
    evaluated = [row for row in rows if row["kind"] == "eval"]
    assert [(row["images_of_many"], row["images_of_few"]) for row in evaluated] == [(36, 12), (72, 24)]
    assert [row["samples_seen"] for row in evaluated] == [48, 96] and evaluated[-1]["num_val"] == 32
    assert all(
        row["record_bytes_of_many"] + row["record_bytes_of_few"] == row["record_bytes"] for row in rows
    )


@pytest.mark.program
def test_a_source_may_lie_far_away(mixed: list[str], places: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install 'pcr-exp[remote]'")
    _, here = rows_of(compose("train", *mixed))
    with range_server(places["few"]) as server:
        given = [f"dataset.sources.few.root={server.url}", f"runs_root={tmp_path / 'far'}"]
        _, there = rows_of(compose("train", *mixed, *given))
        assert any(method == "GET" for method, *_ in server.requests)
    columns = with_declared(source_columns(["many", "few"]))
    assert deterministic_part(there, columns) == deterministic_part(here, columns)


def test_a_run_is_named_by_its_sources_and_not_by_their_places(
    mixed: list[str], places: dict[str, Path], tmp_path: Path
) -> None:
    first = run_training(compose("train", *mixed), progress=False)
    moved = shutil.copytree(places["few"], tmp_path / "elsewhere" / "renamed")
    there = run_training(compose("train", *mixed, f"dataset.sources.few.root={moved}"), progress=False)
    assert (there.run_id, there.status) == (first.run_id, "skipped")
    assert first.run_id.startswith("mixture-label-")
    other = [*mixed, "dataset.sources.few.share=2"]
    assert run_training(compose("train", *other), progress=False).run_id != first.run_id


def test_a_dry_run_says_images_and_bytes(mixed: list[str], places: dict[str, Path]) -> None:
    config = compose("train", *mixed)
    planned = plan(config)
    many, few = index_of(places["many"]), index_of(places["few"])
    wanted = 2 * (36 * many.mean_prefix_bytes(2) + 12 * few.mean_prefix_bytes(5))
    assert planned.amounts["read_bytes"] == pytest.approx(wanted)
    assert "48 images an epoch" in planned.facts
    assert not Path(config.runs_root).exists()
    train(config)
    assert plan(config).status == "would be skipped"


def test_sources_share_one_storage_that_is_slow(mixed: list[str]) -> None:
    slow = ["storage.bandwidth_mib_per_s=0.1", "training.epochs=1", "storage.cold_cache=true"]
    _, rows = rows_of(compose("train", *mixed, *slow))
    assert rows[-1]["bytes_read"] / rows[-1]["wall_s"] < 0.15 * 2**20
    assert rows[-1]["bytes_read"] >= rows[-1]["record_bytes"]


def test_a_model_is_renewed_and_scored_again(mixed: list[str], tmp_path: Path) -> None:
    folder, rows = rows_of(compose("train", *mixed, "training.eval_groups=[full,renewed]"))
    assert [row["eval_group"] for row in rows[-2:]] == ["full", "renewed"]
    given = [text for text in mixed if text.startswith(("dataset", "+dataset", "loader"))]
    scored = compose("evaluate", *given, f"runs=[{folder}]", f"out={tmp_path / 'scored'}", "groups=[2,10]")
    assert evaluate(scored) == "finished"
    table = pd.read_csv(tmp_path / "scored" / "levels.csv")
    (whole,) = table[(table["group"] == 10) & (table["decode"] == "scaled")]["top1"]
    assert whole == pytest.approx(rows[-2]["val_top1"]) and set(table["n"]) == {32}


def test_one_class_has_one_number(mixed: list[str], places: dict[str, Path]) -> None:
    """Labels with different classes are joined: here `photo` of one source and `focus` of the other."""
    config = compose("train", *mixed, "dataset.sources.few.label=focus", "training.epochs=1")
    folder, _ = rows_of(config)
    indexes = [index_of(places[name]).classes[label] for name, label in (("many", "photo"), ("few", "focus"))]
    assert read_manifest(folder / "manifest.json").num_classes == sum(map(len, indexes)) == 10


def test_baseline_records_and_schedules_are_read_too(mixed: list[str], places: dict[str, Path]) -> None:
    whole = [text for text in mixed if "group=2" not in text and not text.startswith("scan=")]
    _, rows = rows_of(compose("train", *whole, "scan=baseline", "training.epochs=1"))
    assert rows[-1]["scan_group"] == 0 and rows[-1]["full_bytes"] == rows[-1]["record_bytes"]
    schedule = ["scan=schedule", "scan.groups=[1,3]", "scan.milestones=[1]"]
    _, rows = rows_of(compose("train", *mixed, *schedule))
    first, second = (row["record_bytes_of_few"] for row in rows if row["kind"] == "eval")
    few = index_of(places["few"])
    assert first <= few.epoch_bytes(1) < second - first


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["+dataset.sources.few.shares=1"], "dataset.sources.few=.*wanted root and share"),
        (["+dataset.sources.x.root=y"], "dataset.sources.x=.*wanted root and share"),
        (["dataset.sources.few.share=0"], "dataset.sources.few.share=0.0: wanted above 0"),
        (["+dataset.sources.few.group=0"], "dataset.sources.few.group=0"),
        (["+dataset.sources.Few={root:x,share:1}"], "dataset.sources='Few': wanted names of at most 16"),
        (["dataset.epoch=longest"], "dataset.epoch='longest': wanted largest, smallest, or a number"),
        (["dataset.label=photo"], r"dataset.label='photo': wanted label: .*dataset.sources.<name>.label"),
        (["dataset.tune_fraction=0.1"], "dataset.tune_fraction=0.1: wanted 0.0: the records of each source"),
        (["dataset.num_folds=3"], "dataset.num_folds=3: wanted null"),
        (["echo=batch"], "echo='batch': wanted none with dataset=mixture"),
        (["storage.cache=memory", "storage.cache_mib=1"], "storage.cache='memory': wanted null with"),
        (
            ["training.eval_groups=[full,same]"],
            "eval_groups=.*wanted no `same` with dataset=mixture",
        ),
        (["scan=baseline"], "dataset.sources.many.group=2: wanted null with scan=baseline"),
    ],
)
def test_settings_that_cannot_work_are_refused(mixed: list[str], given: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose("train", *mixed, *given)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (["dataset.sources.few.label=size"], ConfigError, "few.label='size': wanted one of focus, photo"),
        (["dataset.sources.few.label=null"], ConfigError, "few.label=None: wanted one of focus, photo"),
        (["dataset.epoch=3", "dataset.sources.few.share=0.1"], ConfigError, "shares={'few': 0.1}"),
        (["dataset.sources=null"], ConfigError, r"dataset.sources={}: wanted two or more: \+dataset.sources"),
        (["scan=balanced"], ConfigError, "scan=balanced with dataset=mixture: wanted a scan group"),
        (["+dataset.sources.few.group=11"], RecordError, "scan group 11 was asked for"),
        (["dataset.sources.few.root=/nowhere"], RecordError, "few/.*index.json"),
    ],
)
def test_records_that_do_not_fit_are_refused(
    mixed: list[str], given: list[str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        run_training(compose("train", *mixed, *given), progress=False)


@pytest.mark.parametrize("command", [prepare, quality, tolerance, throughput])
def test_other_commands_want_one_dataset(mixed: list[str], tmp_path: Path, command: Any) -> None:
    name = command.__name__
    given = [text for text in mixed if text.startswith(("dataset", "+dataset"))]
    out = f"work={tmp_path}" if name == "throughput" else f"out={tmp_path}/out"
    with pytest.raises(
        ConfigError, match=r"dataset=mixture .*: wanted a single dataset.*one source at a time"
    ):
        command(compose(name, *given, out))


def test_sources_are_given_in_one_word_too() -> None:
    one = "a:{root:x,share:1}"
    with pytest.raises(ConfigError, match="wanted two or more"):
        compose("train", "dataset=mixture", f"dataset.sources={{{one}}}")
    two = f'{one},b:{{root:"~/y",share:2,group:3}}'
    source = compose("train", "dataset=mixture", f"dataset.sources={{{two}}}").dataset.sources["b"]
    assert source.group == 3 and source.root == str(Path.home() / "y")


def test_processes_that_go_on_share_what_was_counted() -> None:
    progress: dict[str, Any] = {key: {} for key in ("epoch_loss", "interval_loss", "interval_start")}
    progress |= {"samples_seen": 4, "probe_bytes": 5}
    of_ranks = [{"progress": progress | {"by_source": {"images_of_a": n}}, "exchange": {}} for n in (3, 1)]
    counted = dict.fromkeys(COUNTED, 0)
    alone = share_of_state([state | counted for state in of_ranks], 0, 1)
    assert alone["progress"]["by_source"] == {"images_of_a": 4} and alone["progress"]["samples_seen"] == 8
    assert alone["progress"]["probe_bytes"] == 10


def test_rows_of_one_dataset_have_no_such_columns() -> None:
    assert not any("_of_" in column.name for column in COLUMNS)
