"""Each measuring program writes the columns of its committed table: one repeat, on small images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skimage.data
import torch
from PIL import Image

from experiments.results.study import add_missing, in_turns
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.errors import DatasetError

RESULTS = Path(__file__).parents[2] / "results"
SPEED = "experiments.loaders.speed"
ONE = ["--repeats", "1"]


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of photographs of two classes; programs write records into the test's own folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "images"
    for name, left in (("n0/a", 0), ("n0/b", 40), ("n1/c", 80), ("n1/d", 120)):
        path = folder / f"{name}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(skimage.data.astronaut()[:200, left : left + 240]).save(path, quality=85)
    return folder


def set_all(patch: pytest.MonkeyPatch, module: str, **values: Any) -> None:
    for name, value in values.items():
        patch.setattr(f"{module}.{name}", value)


def made(module: str, arguments: Sequence[str], table: str) -> pd.DataFrame:
    """Run a program into a folder, and compare its columns with the committed ones."""
    import_module(module).main([*arguments, "--out", "out"])
    (file,) = Path("out").glob("*.csv")
    frame = pd.read_csv(file)
    file.unlink()
    assert list(frame) == list(pd.read_csv(RESULTS / table)) and len(frame)
    return frame


@pytest.mark.parametrize(
    ("name", "table", "arguments", "small"),
    [
        ("decode", "antialias/cost.csv", [], {"NUM_IMAGES": 4}),
        ("decoder", "throughput/decoder.csv", ["--num-images", "2"], {}),
        (
            "epoch_starts",
            "throughput/epoch_starts.csv",
            ["--mib-per-s", "50", "--epochs", "1"],
            {"NUM_IMAGES": 256, "IMAGES_PER_RECORD": 16},
        ),
        *(
            ("hidden_latency", table, ["--images-per-record", "4", "--groups", "1", "--seconds", "0.01"], {})
            for table in ("object_stores/small_reads.csv", "throttle/latency.csv")
        ),
        (
            "throttled_loader",
            "throttle/bound.csv",
            ["--mib-per-s", "50", "--scans", "group_1", "--shuffle-records", "1"],
            {"NUM_IMAGES": 512, "_OWN_S": 0.1, "_MEASURED_S": 0.1},
        ),
    ],
)
def test_a_program_of_images(
    name: str,
    table: str,
    arguments: list[str],
    small: dict[str, Any],
    images: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_all(monkeypatch, f"{SPEED}.{name}", **small)
    made(f"{SPEED}.{name}", [*arguments, *ONE, "--images", str(images)], table)


def test_the_program_of_sets(images: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    two = [f"one={images}", f"two={images}", "--num-images", "2"]
    frame = made(f"{SPEED}.per_set", [*two, *ONE], "datasets/cost.csv")
    assert frame["set"].tolist() == ["one", "two"] and (frame["images"] == 2).all()
    with pytest.raises(DatasetError, match=r"empty: holds no JPEG file. Name a set as name=folder"):
        import_module(f"{SPEED}.per_set").main([f"nothing={tmp_path / 'empty'}", *ONE, "--out", "out"])


@pytest.mark.parametrize("what", ["index", "prefix", "encode", "build_time"])
def test_the_program_of_records(what: str, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"NUM_IMAGES": 8, "RECORDS_OF": {4: 8}, "SPLIT_BYTES": 1e5}
    set_all(monkeypatch, f"{SPEED}.records", **small)
    made(f"{SPEED}.records", [what, *ONE, "--images", str(images), "--peers"], f"records_speed/{what}.csv")


@pytest.mark.usefixtures("images")
def test_programs_without_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, f"{SPEED}.cached_reads", EPOCHS=2, CACHE_SHARES=(0.5,))
    made(f"{SPEED}.cached_reads", [], "cache/cached_reads.csv")
    drawn = import_module("experiments.threelc.codec_speed").drawn
    small = {"CASES": {"few": lambda: drawn([64], torch.randn)}, "NUM_STEPS_BEFORE": 1}
    set_all(monkeypatch, "experiments.threelc.codec_speed", **small)
    made("experiments.threelc.codec_speed", ONE, "codec_speed/codec.csv")
    (tmp_path / "blob").write_bytes(bytes(200_000))
    few = ["--kb", "10", "--latency-ms", "0", "--seconds", "0.1", "--clients", "fsspec"]
    asked = ["--server", "none", "--url", f"file://{tmp_path}", *few, *ONE]
    made(f"{SPEED}.object_reads", asked, "object_stores/object_reads.csv")
    scale = "experiments.loaders.scale_page"
    table = partial(import_module(scale).simulated_table, [1, 2], 8192)
    set_all(monkeypatch, scale, simulated_table=table)
    made(scale, [], "scale/simulated.csv")


def test_scan_scripts(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, "experiments.pcr.scan_scripts", searched_scripts=dict)
    few = ["--num-images", "2", "--num-searched", "1", "--num-compared", "1", "--images", str(images), *ONE]
    arguments = [*few, "--out", "out", "--scripts", "default"]
    import_module("experiments.pcr.scan_scripts").main(arguments)
    for name in ("writers", "crops", "groups", "search"):
        committed = pd.read_csv(RESULTS / "scan_scripts" / f"{name}.csv")
        assert list(pd.read_csv(f"out/{name}.csv")) == list(committed)


@pytest.fixture
def data(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Native images and class names, in the folder where studies of frozen features expect them."""
    pytest.importorskip("efficientnet_lite_pytorch")
    names = ["n0", "n1", *(f"x{number}" for number in range(998))]
    (tmp_path / "imagenet_wnids.txt").write_text("\n".join(names))
    images.rename(tmp_path / "imagenet_native_sample")
    monkeypatch.setattr("experiments.pcr.resize_filter.DATA", tmp_path)
    return tmp_path


def test_the_resize_filter(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    module = import_module("experiments.pcr.resize_filter")
    for split in ("train", "val"):
        for number, path in enumerate(sorted((data / "imagenet_native_sample").rglob("*.JPEG"))):
            link = data / "folder" / split / f"class_{number % 2}" / f"{number}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    config = FolderConfig(name="mine", root=str(data / "folder"), label="class", images_per_record=1)
    tasks = [module.Task("native", None, ("wnid",), 64), module.Task("mine", config, ("class",), 64)]
    set_all(monkeypatch, "experiments.pcr.resize_filter", TASKS=tasks, NUM_FOLDS=2)
    asked = ["--tasks", "native", "mine", "--kept", str(data / "kept"), "--scans", "group_2"]
    frame = made("experiments.pcr.resize_filter", asked, "antialias/features.csv.gz")
    assert frame.groupby("task").size().to_dict() == {"native wnid": 4, "mine class": 8}
    assert frame["correct"].isin([0, 1]).all() and (frame["loss"] >= 0).all()


def test_the_classifier_is_asked_about_images_that_it_has_not_seen() -> None:
    pytest.importorskip("sklearn")
    module = import_module("experiments.pcr.resize_filter")
    labels = np.arange(200) // 10 % 2
    features = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    by_chance = module.cross_validated(features, features, labels)
    features[:, 0] = 5 * labels
    known = module.cross_validated(features, features, labels)
    assert (known.classes == labels).all() and (known.losses < 0.3).all()
    assert 0.3 < (by_chance.classes == labels).mean() < 0.7
    swapped = features.copy()
    swapped[:, 0] = 5 * (1 - labels)
    assert (module.cross_validated(features, swapped, labels).classes != labels).all()


def test_cases_take_turns() -> None:
    asked: list[str] = []

    def ask(name: str) -> dict[str, int]:
        asked.append(name)
        return {"nth": len(asked)}

    rows = in_turns((({"case": name}, partial(ask, name)) for name in "ab"), 2)
    assert [tuple(row.values()) for row in rows] == [("a", 0, 1), ("b", 0, 2), ("a", 1, 3), ("b", 1, 4)]


def test_what_a_file_holds_is_not_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[int] = []

    def case(number: int) -> tuple[dict[str, int], Callable[[], pd.DataFrame]]:
        def measure() -> pd.DataFrame:
            asked.append(number)
            return pd.DataFrame({"number": number, "x": [0.5, 1.0]})

        return {"number": number}, measure

    for numbers in ([1], [1, 2]):
        add_missing(map(case, numbers), tmp_path / "new" / "a.csv", lambda rows: f"{len(rows)} rows")
    assert asked == [1, 2] and capsys.readouterr().out == "2 rows\n2 rows\n"
    assert pd.read_csv(tmp_path / "new" / "a.csv")["number"].tolist() == [1, 1, 2, 2]
