"""Users' own image folders: dataset names, paths with special characters, and records elsewhere."""

import re
from pathlib import Path

import pytest
from composing import compose

from pcr_exp.analysis.quality import load_quality
from pcr_exp.cli.prepare import prepare
from pcr_exp.cli.quality import quality
from pcr_exp.cli.train import train
from pcr_exp.config.records import records_name
from pcr_exp.errors import RecordError, RunError
from tests.cli.test_cli import class_folders, folder_overrides

__all__ = ["class_folders"]

pytestmark = pytest.mark.usefixtures("light_figures")


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ("/data/pets", "pets"),
        ("/data/pets/", "pets"),
        ("/data/my photos", "my_photos"),
        ("/data/2024-05 (best)", "2024_05_best"),
        ("/data/猫", "folder"),
        ("/", "folder"),
    ],
)
def test_a_folder_of_pictures_is_called_after_itself(root: str, name: str) -> None:
    config = compose("quality", "dataset=folder", f'dataset.root="{root}"')
    assert config.dataset.name == name
    assert records_name(config.dataset).startswith(f"{name}-")


def test_a_folder_is_called_as_its_user_says() -> None:
    config = compose("quality", "dataset=folder", "dataset.root=/data/pets", "dataset.name=cats")
    assert config.dataset.name == "cats"


def test_home_is_meant_by_its_sign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    data = ["dataset=folder", 'dataset.root="~/pets"', 'records.root="~/records"']
    trained = compose("train", *data, 'runs_root="~/runs"')
    measured = compose("quality", *data, 'out="~/quality"')
    drawn = compose("figures", 'runs_root="~/runs"', 'quality_root="~/quality"', 'out="~/figures"')
    for config in (trained, measured):
        assert config.dataset.root == str(tmp_path / "pets")
        assert config.records.root == str(tmp_path / "records")
    assert trained.dataset.name == "pets"
    assert (trained.runs_root, measured.out) == (str(tmp_path / "runs"), str(tmp_path / "quality"))
    assert (drawn.runs_root, drawn.quality_root, drawn.out) == tuple(
        str(tmp_path / name) for name in ("runs", "quality", "figures")
    )
    assert compose("demo", 'out="~/demo"').out == str(tmp_path / "demo")


def test_a_path_with_spaces_trains_and_is_measured(
    class_folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = class_folders.rename(tmp_path / "my photos")
    data = folder_overrides(root, tmp_path / "my records")
    small = [
        "training=debug",
        "training.num_threads=1",
        "loader=debug",
        "scan=group_2",
        "training.batch_size=5",
    ]
    assert train(compose("train", *data, *small, f"runs_root={tmp_path / 'my runs'}")) == "finished"
    (run,) = (tmp_path / "my runs").glob("my_photos-class-*")
    said = capsys.readouterr().out
    assert re.match(r"top-1 \d+\.\d% of 2 images, after 1 epoch\n", said)
    assert f"figure: {run}/training_curve.png" in said
    out = tmp_path / "my quality"
    assert quality(compose("quality", *data, "groups=[1,10]", f"out={out}")) == "finished"
    said = capsys.readouterr().out
    assert "my_photos, val: means of 2 whole images" in said
    assert "| scan group | an image | of group 10 | MS-SSIM | SSIM |" in said
    assert re.search(r"^\| 10 \| .* \| 100.0% \| 1.000 \(1.000 to 1.000\) \|", said, re.MULTILINE)
    assert f"figure: {out}/mssim_vs_scan.png" in said and ".csv" not in said
    assert (out / "quality.json").exists() and (run / "rows.jsonl").exists()


def test_qualities_of_other_settings_lie_side_by_side(class_folders: Path, tmp_path: Path) -> None:
    data = [*folder_overrides(class_folders, tmp_path / "records"), f"out_root={tmp_path / 'out'}"]
    for more in ("groups=[1,10]", "groups=[1,5,10]", "max_images=1", "image=coffee", "image=rocket"):
        assert quality(compose("quality", *data, "groups=[1,10]", more)) == "finished"
    names = sorted(path.name.rpartition("-")[0] for path in (tmp_path / "out").iterdir())
    assert names == ["coffee", *["pictures-val"] * 3, "rocket"]
    assert len(load_quality(tmp_path / "out")["group"].unique()) == 3, "figures show the largest of them"
    taken = next((tmp_path / "out").glob("pictures-val-*"))
    with pytest.raises(RunError, match=r"has results of another study: .*images.*differ"):
        quality(compose("quality", *data, "image=coffee", f"out={taken}"))


def test_quality_makes_no_records_where_it_may_not(class_folders: Path, tmp_path: Path) -> None:
    data = [*folder_overrides(class_folders, tmp_path / "records"), "records.auto_prepare=false"]
    with pytest.raises(RecordError, match=r"no records can be opened at pictures-.*experiments\.prepare"):
        quality(compose("quality", *data, f"out={tmp_path / 'quality'}"))
    assert not (tmp_path / "records").exists()


def test_quality_of_records_elsewhere_needs_no_pictures(class_folders: Path, tmp_path: Path) -> None:
    data = folder_overrides(class_folders, tmp_path / "records")
    prepare(compose("prepare", *data))
    class_folders.rename(tmp_path / "gone")
    data[2] = f"records.root=file://{tmp_path / 'records'}"
    few = ["groups=[1,10]", "split=tune", f"out={tmp_path / 'quality'}"]
    assert quality(compose("quality", *data, *few)) == "finished"
