"""Folders of studies' results: each identity has its own folder."""

import copy
import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from composing import compose

from pcr_exp.errors import RunError
from pcr_exp.runs import identity as identity_module
from pcr_exp.runs.study_folder import IDENTITY_FILE, claim_results
from pcr_exp.system.lock import hold

IMAGES = "0123456789abcdef"
STUDIES = ("quality", "tolerance", "evaluate")
WITHOUT_EFFECT = {
    *("out", "out_root", "features_root", "num_workers", "num_threads", "device", "batch_size", "runs"),
    "num_explored_images",
    *("components", "smoke", "note", "dry_run"),
    *("loader.num_workers", "loader.prefetch_batches", "loader.records_ahead", "loader.timeout_s"),
    *("storage.reads_in_flight", "storage.cache", "storage.cache_mib"),
}
OTHERS = {"dataset.targets", "records.scans.name", "records.scans.scans"}
"""Targets concern trainings. tests/runs/test_identity.py covers names of scripts and their scans."""


def leaves(config: object, prefix: str = "") -> list[str]:
    found: list[str] = []
    for field in fields(config):  # type: ignore[arg-type]
        value = getattr(config, field.name)
        name = f"{prefix}{field.name}"
        found += leaves(value, f"{name}.") if is_dataclass(value) else [name]
    return found


def another(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list):
        return [*value, 1]
    if isinstance(value, dict):
        return {**value, "more": 1}
    return "auc" if value == "classification" else "another"


def changed(config: Any, key: str) -> Any:
    config = copy.deepcopy(config)
    *groups, name = key.split(".")
    owner = config
    for group in groups:
        owner = getattr(owner, group)
    setattr(owner, name, another(getattr(owner, name)))
    return config


def study(kind: str, root: Path, *more: str) -> Any:
    return compose(kind, f"out_root={root}", *more)


def folder_of(config: Any, images: str = IMAGES, **facts: Any) -> Path:
    with claim_results(config, ["pets", "kind/2"], images, **facts) as folder:
        return folder


@pytest.mark.parametrize("kind", STUDIES)
def test_every_setting_counts_unless_it_cannot_change_what_is_found(kind: str, tmp_path: Path) -> None:
    config = study(kind, tmp_path)
    before = folder_of(config)
    assert before.parent == tmp_path and before.name.startswith("pets-kind_2-")
    for key in leaves(config):
        ignored = key in WITHOUT_EFFECT or key.startswith(("tracking.", "dataset.paper."))
        ignored |= key.startswith("records.") and key != "records.codec"
        if key not in OTHERS and not key.startswith("out"):
            assert (folder_of(changed(config, key)) == before) is ignored, key


@pytest.mark.parametrize("kind", STUDIES)
def test_other_images_folders_and_facts_are_another_study(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [f"dataset.root={tmp_path}/{name}/pets" for name in "ab"]
    first, second = (study(kind, tmp_path, "dataset=folder", root) for root in roots)
    assert first.dataset.name == second.dataset.name == "pets"
    found = [
        folder_of(first),
        folder_of(second),
        folder_of(first, "fedcba98"),
        folder_of(first, of_runs=["a"]),
    ]
    monkeypatch.setattr(identity_module, "NUMERICS", 99)
    assert len({*found, folder_of(first)}) == 5
    monkeypatch.undo()
    assert folder_of(first) == found[0]


def test_weights_and_classes_count_by_what_is_in_them(tmp_path: Path) -> None:
    names = {"model.weights": tmp_path / "weights.pt", "classes": tmp_path / "classes.txt"}
    settings = [f"{key}={path}" for key, path in names.items()]
    for path in names.values():
        path.write_text("first")
    config = study("evaluate", tmp_path, *settings)
    found = {folder_of(config)}
    for path in names.values():
        path.write_text("other")
        found.add(folder_of(config))
    assert len(found) == 3


def test_a_folder_with_results_of_another_study_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "mine"
    config = study("tolerance", tmp_path, f"out={out}", "groups=[1,10]")
    assert folder_of(config) == out
    assert folder_of(study("tolerance", tmp_path, f"out={out}")) == out, "it holds nothing yet"
    folder_of(config)
    (out / "tolerance.json").write_text("{}")
    assert folder_of(config) == out, "the same study may measure again"
    for setting in ("groups=[1,5,10]", "image_size=64", "decode=libjpeg"):
        other = study("tolerance", tmp_path, f"out={out}", "groups=[1,10]", setting)
        name = setting.partition("=")[0]
        with pytest.raises(RunError, match=rf"mine has results of another study: {name} differ\. Omit out="):
            folder_of(other)
    with pytest.raises(RunError, match=r"another study: .*images.* differ"):
        folder_of(config, "fedcba98")
    with pytest.raises(RunError, match=r"another study: .*study.* differ"):
        folder_of(study("quality", tmp_path, f"out={out}"))
    assert (out / "tolerance.json").read_text() == "{}"


@pytest.mark.parametrize("name", ["quality.json", "tolerance.json", "evaluation.json", "sample_image.csv"])
def test_results_that_do_not_say_what_they_are_of_are_kept(name: str, tmp_path: Path) -> None:
    config = study("quality", tmp_path, f"out={tmp_path}")
    (tmp_path / name).write_text("older")
    with pytest.raises(RunError, match=r"has results of an unknown study \(no identity\.json\)"):
        folder_of(config)
    for content in ("[1]", "{"):
        (tmp_path / IDENTITY_FILE).write_text(content)
        with pytest.raises(RunError, match=r"all of it differ|identity\.json is damaged"):
            folder_of(config)
    assert (tmp_path / name).read_text() == "older"


def test_one_process_at_a_time_and_no_lock_is_left(tmp_path: Path) -> None:
    config = study("quality", tmp_path)
    folder = folder_of(config)
    assert [path.name for path in folder.iterdir()] == [IDENTITY_FILE]
    assert json.loads((folder / IDENTITY_FILE).read_text())["images"] == IMAGES
    with (
        hold(folder / "lock", lambda _: AssertionError()),  # type: ignore[arg-type, return-value]
        pytest.raises(RunError, match=r"is in use by process \d+ .*same out="),
    ):
        folder_of(config)
