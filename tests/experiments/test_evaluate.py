"""The runner on pictures that the test makes: runs, published weights, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import torchvision
from composing import compose

from pcr_exp.errors import ConfigError, RunError
from pcr_exp.runners.evaluate import evaluate
from pcr_exp.runs.train_run import run_training
from tests.runs.test_tracking import finished_records, items, offline_home

__all__ = ["offline_home"]

pytestmark = pytest.mark.usefixtures("light_figures")

DATA = ["dataset=photos", "dataset.num_train=60", "dataset.num_val=20", "dataset.size_px=64"]
FEW = ["dataset.images_per_record=16", "records.num_workers=1", "loader.num_workers=0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with records and two finished runs, of baseline and of group 1."""
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
    return compose("evaluate", *data(root), "image_size=32", f"out={out}", "model=shufflenet_v2_x0_5", *more)


def test_the_matrix_of_two_runs(place: Path, tmp_path: Path) -> None:
    config = asked(
        place, tmp_path, f"runs=[{place / 'runs'}]", "groups=[10,1]", "decodes=[unsmoothed,libjpeg]"
    )
    assert evaluate(config) == "finished"
    table = pd.read_csv(tmp_path / "levels.csv")
    assert sorted(table["trained_on"].unique()) == ["baseline", "group_1"]
    assert len(table) == 2 * (1 + 2 * 2)
    assert (table["n"] == 20).all()
    # What the run itself said of its last model at full fidelity is what the evaluation finds.
    for name, rows in table.groupby("model"):
        lines = (place / "runs" / str(name) / "rows.jsonl").read_text().splitlines()
        last = json.loads(lines[-1])
        full = rows[rows["scan"] == "baseline"].iloc[0]
        assert full["top1"] == last["val_top1"]
        assert full["loss"] == pytest.approx(last["val_loss"], abs=1e-3)
    assert (tmp_path / "matrix.png").exists()
    assert json.loads((tmp_path / "evaluation.json").read_text())["headline"] == "top1"


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
    evaluate(asked(place, out, *weights, "groups=[1]"))
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
        evaluate(asked(place, tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("image_size=64", "image_size=64: the run photos-.* had 32. Give image_size=32"),
        ("model=resnet18", "model.name='resnet18': the run photos-.* had 'shufflenet_v2_x0_5'"),
        ("dataset.label=focus", "dataset.label='focus': the run photos-.* had 'photo'"),
        ("loader.antialias=false", "loader.antialias=False: the run photos-.* had True"),
    ],
)
def test_runs_of_something_else_are_refused(place: Path, tmp_path: Path, change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluate(asked(place, tmp_path, f"runs=[{place / 'runs'}]", change))


def test_auc_wants_two_classes(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="task=auc: the label that is trained on has 8 classes; wanted a"):
        evaluate(asked(place, tmp_path, f"runs=[{place / 'runs'}]", "task=auc"))


def test_a_folder_without_runs(place: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no finished run there; wanted folders of runs"):
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
    with pytest.raises(ConfigError, match=r"dataset\.label='colour': the records have focus, photo"):
        evaluate(asked(place, tmp_path, "dataset.label=colour"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("split=test", "split='test': wanted train or tune or val"),
        ("groups=[0]", r"groups=\[0\]: wanted scan groups, 1\.\.10"),
        ("decodes=[fast]", r"decodes=\['fast'\]: wanted some of libjpeg, unsmoothed, scaled"),
        ("batch_size=0", "batch_size=0: wanted at least 1"),
        ("num_threads=0", "num_threads=0: wanted null or at least 1"),
        ("runs=[a] classes=b", "classes='b': wanted null with runs"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_key(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose("evaluate", *override.split())
