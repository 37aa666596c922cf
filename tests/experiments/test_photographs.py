"""Photographs of public repositories are laid out as the dataset readers expect, and described."""

from __future__ import annotations

import io
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
from PIL import Image

from experiments.photographs import layouts
from experiments.photographs.__main__ import main, report
from experiments.photographs.found import Found, expected_table, find, page_table, sets_table
from experiments.photographs.layouts import SOURCES, GitFiles, Origin, Repository, lay, read_origin
from pcr_exp.datasets.sample import split_of
from pcr_exp.errors import DatasetError
from pcr_exp.places import CHECKOUT

TABLES = Path(__file__).parents[2] / "results" / "datasets"
WNIDS = ("n01440764", "n02102040")


def jpeg(seed: int, width: int = 24, height: int = 16, quality: int = 75, **settings: bool) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality, **settings)
    return file.getvalue()


def class_folders(split: str, num: int, first: int = 0) -> dict[str, bytes]:
    return {
        f"{split}/{wnid}/{i}.JPEG": jpeg(first + 2 * i + j)
        for i in range(num)
        for j, wnid in enumerate(WNIDS)
    }


def commit(folder: Path, files: dict[str, bytes], *, bare: bool = True) -> tuple[Path, str]:
    """Create a repository with these files; return it and their commit, which is not its head."""

    def git(*arguments: str, cwd: Path = folder) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
        done = subprocess.run(["git", *who, *arguments], cwd=cwd, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "photographs")
    sha = git("rev-parse", "HEAD")
    git("commit", "-q", "--allow-empty", "-m", "later")
    if not bare:
        return folder, sha
    git("clone", "-q", "--bare", str(folder), str(folder) + ".git")
    return Path(f"{folder}.git"), sha


def as_source(
    monkeypatch: pytest.MonkeyPatch, name: str, photographs: str, labels: str | None = None
) -> None:
    """Replace the commits of the public repositories by those of a test."""
    source = SOURCES[name]
    own = replace(source.photographs, commit=photographs)
    others = replace(source.labels, commit=labels) if source.labels and labels else None
    monkeypatch.setitem(layouts.SOURCES, name, replace(source, photographs=own, labels=others))


@pytest.fixture
def cars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, bytes]]:
    """Forty images of four models, with three pairs of equal files; one pair agrees on the model."""
    images = {f"cars_train/{i:05d}.jpg": jpeg(i, 24 + i, 16) for i in range(1, 41)}
    images["cars_train/00008.jpg"] = images["cars_train/00004.jpg"]  # 4 and 8 have the same class
    images["cars_train/00010.jpg"] = images["cars_train/00005.jpg"]
    images["cars_train/00012.jpg"] = images["cars_train/00007.jpg"]
    labels = "".join(f"{1 + i % 4}\n" for i in range(1, 41)).encode()
    meta = io.BytesIO()
    models = np.array([[f"Make{i} Model 20{i}2" for i in range(4)]], dtype=object)
    scipy.io.savemat(meta, {"class_names": models})
    beside = {"train_perfect_preds.txt": labels, "cars_meta.mat": meta.getvalue()}
    repository, sha = commit(tmp_path / "cars", images | beside)
    as_source(monkeypatch, "cars", sha)
    return repository, images


def test_cars_are_laid_as_the_devkit_has_them(cars: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    repository, images = cars
    root = tmp_path / "out"
    origin = lay("cars", repository, root)
    names = [f"cars_train/{i:05d}.jpg" for i in (4, 8, 5, 10, 7, 12)]
    assert origin.duplicates == [names[:2]]
    assert sorted(origin.contradictions) == [names[2:4], names[4:]]
    found = find("cars", root)
    assert len(found.images) == 40 - 1 - 4 and not found.bad
    for image in found.images:
        folder, name = image.id.split("/")
        assert (root / image.id).read_bytes() == images[f"cars_train/{name}"]
        assert image.label == f"Make{int(name[:5]) % 4} Model 20{int(name[:5]) % 4}2"
        split = split_of(name, val_fraction=0.2, tune_fraction=0.0, seed=42)
        assert (folder, image.split) == (("cars_test", "val") if split == "val" else ("cars_train", "train"))
    annotations = scipy.io.loadmat(root / "cars_test_annos_withlabels.mat", simplify_cells=True)[
        "annotations"
    ]
    for row in annotations:
        with Image.open(root / "cars_test" / row["fname"]) as image:
            assert (row["bbox_x1"], row["bbox_y1"], row["bbox_x2"], row["bbox_y2"]) == (1, 1, *image.size)
    assert read_origin(root) == origin


def test_labels_for_another_number_of_cars(
    cars: tuple[Path, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, images = cars
    repository, sha = commit(tmp_path / "few", {**images, "train_perfect_preds.txt": b"1\n2\n"})
    as_source(monkeypatch, "cars", sha)
    with pytest.raises(DatasetError, match="has 2 lines for 40 photographs"):
        lay("cars", repository, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("bare", [True, False])
def test_imagenet_keeps_its_folders(bare: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = {**class_folders("train", 4), **class_folders("val", 2, first=100)}
    leak = {f"val/{WNIDS[0]}/leak.JPEG": images[f"train/{WNIDS[0]}/0.JPEG"]}
    repository, sha = commit(tmp_path / "imagenette", {**images, **leak, "README.md": b"ten"}, bare=bare)
    as_source(monkeypatch, "imagenet", sha)
    root = tmp_path / "out"
    origin = lay("imagenet", repository, root)
    assert origin.contradictions == [[f"train/{WNIDS[0]}/0.JPEG", f"val/{WNIDS[0]}/leak.JPEG"]]
    laid = {path.relative_to(root).as_posix() for path in root.rglob("*.JPEG")}
    assert laid == set(images) - {f"train/{WNIDS[0]}/0.JPEG"}


def ham10000(tmp_path: Path, diagnosis: str = "nv") -> tuple[tuple[Path, str], tuple[Path, str]]:
    numbers = [24306, 29305, 29306, 34320]
    images = {f"images/ISIC_{n:07d}.jpg": jpeg(n, quality=95) for n in [*numbers, 99999]}
    rows = [
        f"HAM_{n},ISIC_{n:07d},{diagnosis if n > 29305 else 'mel'},histo,80.0,male,scalp" for n in numbers
    ]
    rows.append("HAM_1,ISIC_0000001,nv,histo,80.0,male,scalp")
    table = "lesion_id,image_id,dx,dx_type,age,sex,localization\n" + "\n".join(rows) + "\n"
    photographs = commit(tmp_path / "xla", images)
    return photographs, commit(tmp_path / "labels", {"data/HAM10000_metadata.csv": table.encode()})


def test_ham10000_gets_its_parts_and_the_rows_of_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photographs, sha), (labels, labels_sha) = ham10000(tmp_path)
    as_source(monkeypatch, "ham10000", sha, labels_sha)
    root = tmp_path / "out"
    origin = lay("ham10000", photographs, root, labels)
    assert (origin.num_files, origin.unlabelled) == (5, 1)
    parts = {path.relative_to(root).as_posix() for path in root.rglob("*.jpg")}
    assert parts == {
        *(f"HAM10000_images_part_1/ISIC_{n:07d}.jpg" for n in (24306, 29305)),
        *(f"HAM10000_images_part_2/ISIC_{n:07d}.jpg" for n in (29306, 34320)),
    }
    assert {image.group for image in find("ham10000", root).images} == {
        f"HAM_{n}" for n in (24306, 29305, 29306, 34320)
    }


def test_a_diagnosis_that_there_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (photographs, sha), (labels, labels_sha) = ham10000(tmp_path, "flu")
    as_source(monkeypatch, "ham10000", sha, labels_sha)
    with pytest.raises(DatasetError, match=r"diagnoses \['flu'\]"):
        lay("ham10000", photographs, tmp_path / "out", labels)
    with pytest.raises(DatasetError, match="--labels=None: ham10000 wants a clone of mmalek06"):
        lay("ham10000", photographs, tmp_path / "out")


def test_what_cannot_be_laid(cars: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    repository, _ = cars
    with pytest.raises(DatasetError, match=r"--labels=.*: cars wants none"):
        lay("cars", repository, tmp_path / "out", repository)
    with pytest.raises(DatasetError, match="is there already"):
        lay("cars", repository, tmp_path)
    assert CHECKOUT is not None
    with pytest.raises(DatasetError, match="lies in the checkout: photographs are never committed"):
        lay("cars", repository, CHECKOUT / "data" / "new")
    empty = Repository("owner/name", "0" * 40)
    with pytest.raises(
        DatasetError, match=r"has no commit 0{40}.*git clone --bare https://github.com/owner/"
    ):
        GitFiles(repository, empty)
    with pytest.raises(DatasetError, match="has no commit"):
        GitFiles(tmp_path / "nowhere", empty)
    with pytest.raises(DatasetError, match=r"lacks nothing.jpg of .*partial copy"):
        GitFiles(repository, layouts.SOURCES["cars"].photographs).read("nothing.jpg")


def test_git_that_is_not_there(cars: tuple[Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DatasetError, match="git is not installed"):
        GitFiles(cars[0], layouts.SOURCES["cars"].photographs)


def test_a_tree_that_cannot_be_listed(cars: tuple[Path, dict[str, bytes]]) -> None:
    files = GitFiles(cars[0], layouts.SOURCES["cars"].photographs)
    with pytest.raises(DatasetError, match="git ls-tree"):
        replace_commit(files, "0" * 40).ids()


def replace_commit(files: GitFiles, sha: str) -> GitFiles:
    object.__setattr__(files, "repository", Repository("owner/name", sha))
    return files


def test_files_that_are_not_what_they_should_be_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images = {**class_folders("train", 6), **class_folders("val", 2, first=100)}
    whole = images[f"train/{WNIDS[0]}/1.JPEG"]
    images[f"train/{WNIDS[0]}/1.JPEG"] = whole[: len(whole) // 2]
    images[f"train/{WNIDS[0]}/2.JPEG"] = jpeg(77, progressive=True)
    damaged = bytearray(images[f"train/{WNIDS[0]}/3.JPEG"])
    damaged[-40:-2] = b"\0" * 38
    images[f"train/{WNIDS[0]}/3.JPEG"] = bytes(damaged[:-60]) + b"\xff\xd9"
    repository, sha = commit(tmp_path / "imagenette", images)
    as_source(monkeypatch, "imagenet", sha)
    assert main(["lay", "imagenet", str(repository), str(tmp_path / "out")]) == 1
    said = capsys.readouterr().out
    assert f"train/{WNIDS[0]}/1.JPEG: truncated" in said
    assert f"train/{WNIDS[0]}/2.JPEG: no baseline JPEG: its frame is FF C2" in said
    assert f"train/{WNIDS[0]}/3.JPEG: " in said
    assert "ImageNet, two classes, 24 x 16 px, q75" in said


def test_tables_are_written_and_what_is_not_as_expected_is_said(
    cars: tuple[Path, dict[str, bytes]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay("cars", cars[0], tmp_path / "laid")
    assert main(["check", f"cars={tmp_path / 'laid'}", "--out", str(tmp_path / "tables")]) == 0
    assert "8144" in capsys.readouterr().out
    sets = pd.read_csv(tmp_path / "tables/sets.csv").iloc[0]
    assert (sets["files"], sets["images"], sets["duplicates"], sets["contradictions"]) == (40, 35, 1, 4)
    assert (
        sets["train"] + sets["val"]
        == pd.read_csv(tmp_path / "tables/classes.csv")[["train", "val"]].to_numpy().sum()
    )
    assert pd.read_csv(tmp_path / "tables/folds.csv")["images"].sum() == 35
    expected = pd.read_csv(tmp_path / "tables/expected.csv").set_index("number")
    assert expected.loc["quality", "agrees"] and not expected.loc["files", "agrees"]


def test_of_a_set_without_a_good_file_the_bad_ones_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Found("cars", "cars", Origin("", "", "", num_files=1), [], ["a.jpg: torn"])
    assert report([bad], tmp_path / "tables") == 1
    assert capsys.readouterr().out == "a.jpg: torn\n" and not (tmp_path / "tables").exists()


def test_what_was_typed_wrongly(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["check", "dogs=/tmp"]) == 1
    assert "dogs=/tmp: wanted <kind>=<folder>, of the kinds cars" in capsys.readouterr().err
    assert main(["check", f"cars={tmp_path / 'nowhere'}"]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_the_committed_page_says_what_its_tables_say() -> None:
    sets = pd.read_csv(TABLES / "sets.csv")
    page = (TABLES / "README.md").read_text()
    assert page_table(sets) in page
    folds, classes = pd.read_csv(TABLES / "folds.csv"), pd.read_csv(TABLES / "classes.csv")
    for row in sets.to_dict("records"):
        assert folds.loc[folds["set"] == row["set"], "images"].sum() == row["images"]
        of_set = classes[classes["set"] == row["set"]]
        assert (of_set["train"].sum(), of_set["val"].sum()) == (row["train"], row["val"])
        source = SOURCES.get(row["set"])
        if source is not None:
            assert (row["repository"], row["commit"]) == (source.photographs.name, source.photographs.commit)
    assert not sets["bad"].any()
    for row in pd.read_csv(TABLES / "expected.csv").query("not agrees").to_dict("records"):
        assert f"{row['expected']}" in page and f"{row['found']}" in page


def test_the_shared_set_is_what_it_is_called() -> None:
    root = Path(__file__).parents[3] / "shared" / "data" / "celebahq"
    if not root.is_dir():
        pytest.skip("../shared/data is not here")
    found = find("celebahq", root)
    assert found.title == "CelebA, two classes, 89 x 109 px, q75"
    table = sets_table([found]).astype(str)
    committed = pd.read_csv(TABLES / "sets.csv", dtype=str, keep_default_na=False).set_index("set")
    assert table.iloc[0]["list_sha256"] == committed.loc["celebahq", "list_sha256"]
    assert expected_table([found])["agrees"].all()
    assert json.dumps(found.bad) == "[]"
