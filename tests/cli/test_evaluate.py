"""Evaluation of runs and published weights on generated images, and the settings that it refuses."""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import torchvision
import yaml
from composing import compose

from pcr_exp.cli.evaluate import evaluate
from pcr_exp.config.measuring import DEFAULT_MODEL
from pcr_exp.errors import ConfigError, DatasetError, RunError
from pcr_exp.records.reader import RecordSet
from pcr_exp.runs.checkpoints import find_runs, model_of
from pcr_exp.runs.train_run import run_training
from pcr_exp.storage.local import LocalStorage
from tests.runs.test_tracking import finished_records, items, offline_home

__all__ = ["offline_home"]

pytestmark = pytest.mark.usefixtures("light_figures")

DATA = ["dataset=photos", "dataset.num_train=60", "dataset.num_val=20", "dataset.size_px=64"]
FEW = ["dataset.images_per_record=16", "records.num_workers=1", "loader.num_workers=0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with records and two finished runs, one at baseline and one at group 1."""
    root = tmp_path_factory.mktemp("evaluate")
    for scan in ("baseline", "group_1"):
        settings = [
            "training=debug",
            "training.num_threads=1",
            "training.batch_size=16",
            f"scan={scan}",
            f"runs_root={root / 'runs'}",
        ]
        run_training(compose("train", *settings, *data(root)), progress=False)
    return root


def data(root: Path) -> list[str]:
    return [*DATA, *FEW, f"dataset.root={root / 'photos'}", f"records.root={root / 'records'}"]


def asked(root: Path, out: Path, *more: str) -> Any:
    return compose("evaluate", *data(root), f"out={out}", *more)


def test_the_matrix_of_two_runs(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = asked(
        place, tmp_path, f"runs=[{place / 'runs'}]", "groups=[10,1]", "decodes=[unsmoothed,libjpeg]"
    )
    assert evaluate(config) == "finished"
    said = capsys.readouterr().out
    assert "val: 20 images; ± half the 95 % interval over pairs of one image" in said
    assert "| network | read at | top-1 | top-1 against the originals, points | top-5 |" in said
    assert said.count("| group_1, unsmoothed | ") == 2 and f"figure: {tmp_path}/matrix.png" in said
    table = pd.read_csv(tmp_path / "levels.csv")
    assert sorted(table["trained_on"].unique()) == ["baseline", "group_1"]
    assert len(table) == 2 * (1 + 2 * 2)
    assert (table["n"] == 20).all()
    # The evaluation at full fidelity reproduces the metrics that the run recorded for its last model.
    for name, rows in table.groupby("model"):
        lines = (place / "runs" / str(name) / "rows.jsonl").read_text().splitlines()
        last = json.loads(lines[-1])
        full = rows[rows["scan"] == "baseline"].iloc[0]
        assert full["top1"] == last["val_top1"]
        assert full["loss"] == pytest.approx(last["val_loss"], abs=1e-3)
    assert (tmp_path / "matrix.png").exists()
    said = json.loads((tmp_path / "evaluation.json").read_text())
    assert (said["headline"], said["model"], said["image_size_px"]) == ("top1", "shufflenet_v2_x0_5", 32)


def test_evaluations_of_other_settings_lie_side_by_side(place: Path, tmp_path: Path) -> None:
    run = next((place / "runs").glob("photos-*"))
    for runs, group in ((run, 1), (run, 2), (place / "runs", 1), (run, 1)):
        config = asked(
            place, tmp_path, "out=null", f"out_root={tmp_path}", f"runs=[{runs}]", f"groups=[{group}]"
        )
        assert evaluate(config) == "finished"
    names = sorted(path.name.rpartition("-")[0] for path in tmp_path.iterdir())
    assert names == [*["photos-photo-val-1_run"] * 2, "photos-photo-val-2_runs"]
    with pytest.raises(RunError, match="has results of another study: groups, of_runs differ"):
        evaluate(asked(place, next(tmp_path.glob("*-2_runs-*")), f"runs=[{run}]", "groups=[5]"))


def test_weights_whose_outputs_are_named_by_a_file(place: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = torchvision.models.shufflenet_v2_x0_5(num_classes=30)
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    index = json.loads(next((place / "records").glob("*/val/baseline/index.json")).read_text())
    names = index["classes"]["photo"]
    lines = [*(f"other_{i}" for i in range(30 - len(names))), *names]
    (tmp_path / "classes.txt").write_text("\n".join(lines))
    weights = [
        f"model.weights={tmp_path / 'weights.pt'}",
        "model.pretrained=true",
        f"classes={tmp_path / 'classes.txt'}",
    ]
    out = tmp_path / "out"
    evaluate(asked(place, out, *weights, "model=shufflenet_v2_x0_5", "image_size=32", "groups=[1]"))
    assert len(pd.read_csv(out / "scores.csv")) == 2 * 20
    assert (out / "losses.png").exists()


@pytest.mark.program
@pytest.mark.usefixtures("offline_home")
def test_figures_are_shown_where_runs_are_shown(place: Path, tmp_path: Path) -> None:
    run = next((place / "runs").glob("photos-*"))
    evaluate(asked(place, tmp_path, f"runs=[{run}]", "groups=[1]", "tracking=wandb"))
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    logged = [items(r.history.item) for r in finished_records(file) if r.HasField("history")]
    assert any(key.startswith("figures/losses") for row in logged for key in row)


def test_fresh_weights_are_nothing_to_evaluate(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.pretrained=False.*have no weights for 8 classes.*runs="):
        evaluate(asked(place, tmp_path, "model=shufflenet_v2_x0_5"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("image_size=64", "image_size=64: the run photos-.* had 32. Leave it out"),
        (
            "model=resnet18",
            "model.name='resnet18': the run photos-.* had 'shufflenet_v2_x0_5'. Leave model out",
        ),
        (
            "dataset.name=pets",
            "dataset.name='pets': the run .* had 'photos'. Give its .*made by.*classes=<file>",
        ),
        ("dataset.label=focus", "dataset.label='focus': the run .* had 'photo'. Give dataset.label=photo"),
        (
            "loader.antialias=false",
            "loader.antialias=False: the run photos-.* had True. Give loader.antialias=T",
        ),
        ("dataset.split_seed=7", "dataset.split_seed=7: the run .* had 42. Give dataset.split_seed=42"),
        ("dataset.num_folds=3", "dataset.num_folds=3: the run .* had None. Give dataset.num_folds=null"),
        (
            "dataset.augment.eval_crop_fraction=1",
            "eval_crop_fraction=1.0: the run .* had 0.5. Give dataset.augment.eval_crop_fraction=0.5",
        ),
    ],
)
def test_runs_of_something_else_are_refused_before_anything_is_encoded(
    place: Path, tmp_path: Path, change: str, message: str
) -> None:
    given = [f"runs=[{place / 'runs'}]", f"records.root={tmp_path / 'records'}", change]
    with pytest.raises(ConfigError, match=message):
        evaluate(asked(place, tmp_path, *given))
    assert not (tmp_path / "records").exists()


def test_a_run_of_another_fold_is_refused_as_it_was_trained_on_these_images(
    place: Path, tmp_path: Path
) -> None:
    run = next((place / "runs").glob("photos-*"))
    shutil.copytree(run, tmp_path / run.name)
    settings = yaml.safe_load((run / "config.yaml").read_text())
    settings["dataset"] |= {"num_folds": 3, "fold": 1}
    (tmp_path / run.name / "config.yaml").write_text(yaml.safe_dump(settings))
    given = [f"runs=[{tmp_path}]", "dataset.num_folds=3"]
    with pytest.raises(ConfigError, match=r"dataset\.fold=None: the run .* had 1\. Give dataset\.fold=1"):
        evaluate(asked(place, tmp_path / "out", *given))


def test_a_run_that_is_named_twice_counts_once(place: Path) -> None:
    runs = sorted((place / "runs").glob("photos-*"))
    found = find_runs([str(place / "runs"), str(runs[0]), f"{runs[1]}/../{runs[1].name}"])
    assert [run.directory.path for run in found] == runs


def test_runs_that_differ_are_refused(place: Path, tmp_path: Path) -> None:
    for key, value, what in (("training", "eval_image_size", "image size"), ("model", "name", "model name")):
        for run in (place / "runs").glob("photos-*"):
            shutil.copytree(run, tmp_path / what / run.name)
        config_path = min((tmp_path / what).iterdir()) / "config.yaml"
        settings = yaml.safe_load(config_path.read_text())
        settings[key][value] = 64 if value == "eval_image_size" else "resnet18"
        config_path.write_text(yaml.safe_dump(settings))
        with pytest.raises(
            ConfigError, match=f"the {what} of photos-.* is .*, but that of photos-.* is .*; wanted"
        ):
            find_runs([str(tmp_path / what)])


def test_a_model_that_nobody_knows_is_named() -> None:
    assert type(model_of({"name": "efficientnet_lite0"})).__name__ == "EfficientNetLiteConfig"
    assert type(model_of({"name": "resnet18", "pretrained": True})).__name__ == "ModelConfig"
    with pytest.raises(
        ConfigError, match=r"model.name='mine': no known family of models .*components=\[<package>\]"
    ):
        model_of({"name": "mine", "num_heads": 3})


def test_the_default_model_is_the_command_s(place: Path, tmp_path: Path) -> None:
    assert asked(place, tmp_path).model.name == DEFAULT_MODEL


def test_auc_wants_two_classes(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="task=auc: the training label has 8 classes; wanted a label with"):
        evaluate(asked(place, tmp_path, f"runs=[{place / 'runs'}]", "task=auc"))


def test_a_folder_without_runs(place: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no finished run there; wanted run directories"):
        evaluate(asked(place, tmp_path, f"runs=[{tmp_path}]"))


def test_a_checkpoint_of_other_classes(place: Path, tmp_path: Path) -> None:
    run = next((place / "runs").glob("photos-*"))
    copied = tmp_path / "copied"
    copied.mkdir()
    for name in ("config.yaml", "manifest.json"):
        (copied / name).write_bytes((run / name).read_bytes())
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    state["model"]["fc.weight"] = torch.zeros(3, 1024)
    torch.save(state, copied / "checkpoint.pt")
    with pytest.raises(
        RunError, match=r"checkpoint\.pt does not fit model\.name='shufflenet_v2_x0_5' with 8"
    ):
        evaluate(asked(place, tmp_path / "out", f"runs=[{copied}]"))


def test_what_is_not_there_is_named(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"classes=/no/such\.txt: no such file"):
        evaluate(asked(place, tmp_path, "classes=/no/such.txt"))
    with pytest.raises(ConfigError, match=r"split=tune: this split of photos has no images"):
        none = ["dataset.tune_fraction=0", f"records.root={tmp_path / 'records'}"]
        evaluate(asked(place, tmp_path / "out", "split=tune", *none))
    with pytest.raises(
        ConfigError, match=r"dataset\.label='colour': the records have the labels focus, photo"
    ):
        evaluate(asked(place, tmp_path, "dataset.label=colour"))


@pytest.fixture(scope="module")
def photographs(place: Path) -> Path:
    """Validation images of the runs as new photographs: in class folders, and in one folder with a table."""
    root = place / "new photographs"
    index = RecordSet(LocalStorage(next((place / "records").glob("*/val"))), "baseline")
    (root / "flat").mkdir(parents=True)
    rows = ["file,photo"]
    for number in range(len(index.index.records)):
        prefix = index.read_prefix(number, 1)
        for i, id_ in enumerate(prefix.ids):
            class_name = index.index.classes["photo"][prefix.labels["photo"][i]]
            name = id_.replace("/", "_")
            folder = root / "by class" / class_name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(prefix.encoded(i))
            (root / "flat" / name).write_bytes(prefix.encoded(i))
            rows.append(f"{name},{class_name}")
    (root / "labels.csv").write_text("\n".join(rows))
    (root / "classes.txt").write_text("\n".join(index.index.classes["photo"]))
    return root


@pytest.mark.parametrize("kind", ["class folders", "table"])
def test_photographs_are_scored_as_they_lie(
    place: Path, photographs: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Photographs need no split and no records, and give the accuracy of the run's own records."""
    given = ["dataset=folder", f"dataset.root='{photographs / 'by class'}'"]
    if kind == "table":
        given = ["dataset=table", f"dataset.table='{photographs / 'labels.csv'}'", "dataset.label=photo"]
        given += [f"dataset.root='{photographs / 'flat'}'", "dataset.columns.path=file"]
    monkeypatch.chdir(tmp_path)
    asked_for = [
        *given,
        "dataset.augment.eval_crop_fraction=0.5",
        "split=all",
        f"runs=[{place / 'runs'}]",
        f"classes='{photographs / 'classes.txt'}'",
        "groups=[1]",
    ]
    assert evaluate(compose("evaluate", *asked_for, f"out={tmp_path / 'out'}")) == "finished"
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "nothing is encoded"
    evaluate(asked(place, tmp_path / "own", f"runs=[{place / 'runs'}]", "groups=[1]"))
    got, own = (pd.read_csv(tmp_path / name / "levels.csv") for name in ("out", "own"))
    assert (got["n"] == 20).all() and len(got) == len(own) == 4
    assert got["top1"].tolist() == own["top1"].tolist()
    assert got["loss"].tolist() == pytest.approx(own["loss"].tolist(), abs=1e-3)


def test_photographs_without_labels_are_told_what_is_missing(photographs: Path, tmp_path: Path) -> None:
    flat = ["dataset=folder", f"dataset.root='{photographs / 'flat'}'", "split=all", f"out={tmp_path}"]
    with pytest.raises(
        DatasetError, match=r"flat has 0 class folders.* The 20 JPEG files .* have no label: .*dataset=table"
    ):
        evaluate(compose("evaluate", *flat, "model=shufflenet_v2_x0_5"))


def test_a_folder_without_a_training_split_is_told_of_the_other_way(
    photographs: Path, tmp_path: Path
) -> None:
    val = tmp_path / "photographs" / "val"
    shutil.copytree(photographs / "by class", val)
    given = ["dataset=folder", f"dataset.root={val.parent}", f"records.root={tmp_path / 'records'}"]
    with pytest.raises(
        DatasetError, match=r"has val/ but no train/.*without a training split .* use split=all"
    ):
        evaluate(compose("evaluate", *given, f"out={tmp_path / 'out'}"))


def test_images_that_were_trained_on_are_said_to_be_among_them(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = next((place / "runs").glob("photos-*"))
    with caplog.at_level("WARNING"):
        evaluate(
            asked(place, tmp_path, f"runs=[{run}]", "split=all", "groups=[1]", "dataset.max_val_images=7")
        )
    assert "split=all: the scored images include those that these runs were trained on" in caplog.text
    assert (pd.read_csv(tmp_path / "levels.csv")["n"] == 7).all()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("split=test", "split='test': wanted train or tune or val or all"),
        ("groups=[0]", r"groups=\[0\]: wanted scan groups, 1\.\.10"),
        ("decodes=[fast]", r"decodes=\['fast'\]: wanted some of libjpeg, unsmoothed, scaled"),
        ("batch_size=0", "batch_size=0: wanted at least 1"),
        ("image_size=0", "image_size=0: wanted null or at least 1"),
        ("num_threads=0", "num_threads=0: wanted null or at least 1"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_key(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose("evaluate", *override.split())
