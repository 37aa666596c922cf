"""`records.engine=ray` writes the same bytes wherever records are made and whichever machine dies."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from records_encoding import read_tree, write_images
from records_pictures import CASES
from two_raylets import two_raylets

from pcr_exp.config.records import RecordsConfig
from pcr_exp.datasets.folder import FolderConfig
from pcr_exp.errors import ConfigError, ImageError
from pcr_exp.records.prepare import prepare_records


class Ray:
    """Runs tasks in this process, with arguments and results pickled as if sent to another machine."""

    def __init__(self) -> None:
        self.under_way = self.most_under_way = self.num_cancelled = 0
        self.node_folder: Path | None = None
        """The folder in which the cluster's processes began."""

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def remote(self, **_: object) -> Callable[[Callable[..., object]], object]:
        ray = self

        class Task:
            def __init__(self, function: Callable[..., object]) -> None:
                assert isinstance(function, FunctionType), "Ray takes nothing else"
                self.function = function

            def remote(self, *given: object) -> bytes:
                ray.under_way += 1
                ray.most_under_way = max(ray.most_under_way, ray.under_way)
                return pickle.dumps((self.function, given))

        return Task

    def get(self, task: bytes) -> object:
        self.under_way -= 1
        function, given = pickle.loads(task)
        with chdir(self.node_folder or "."):
            return pickle.loads(pickle.dumps(function(*given)))

    def cancel(self, _: bytes, **__: object) -> None:
        self.num_cancelled += 1


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    made = Ray()
    monkeypatch.setitem(sys.modules, "ray", made)
    return made


def on_ray(records: RecordsConfig, folder: str, **changes: Any) -> RecordsConfig:
    return replace(records, engine="ray", root=str(Path(records.root).with_name(folder)), **changes)


def bytes_of(folder: Path) -> dict[str, bytes]:
    tree = read_tree(folder)
    return {name: content for name, content in tree.items() if not name.startswith("source")}


def test_a_cluster_writes_the_same_bytes(dataset: FolderConfig, records: RecordsConfig, ray: Ray) -> None:
    told: list[tuple[int, int]] = []
    made = prepare_records(dataset, on_ray(records, "ray"), progress=lambda *done: told.append(done))
    assert bytes_of(made) == bytes_of(prepare_records(dataset, records))
    assert told[-1] == (12, 12) and ray.most_under_way == 2, "no more than the cluster has work for"


def test_relative_paths_begin_where_the_command_was_started(
    dataset: FolderConfig, records: RecordsConfig, ray: Ray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.node_folder = tmp_path / "node"
    ray.node_folder.mkdir()
    local = prepare_records(dataset, records)
    monkeypatch.chdir(tmp_path)
    here = replace(dataset, root=os.path.relpath(str(dataset.root)))
    made = prepare_records(here, replace(records, engine="ray", root="made", on_error="skip"))
    assert bytes_of(made) == bytes_of(local) and not list(ray.node_folder.iterdir())


def test_the_first_bad_image_ends_it_and_what_is_done_stays(
    dataset: FolderConfig, records: RecordsConfig, ray: Ray
) -> None:
    (Path(str(dataset.root)) / "val/dog/1.jpg").write_bytes(b"")
    settings = on_ray(records, "ray")
    with pytest.raises(ImageError, match=r"val/dog/1\.jpg: zero-byte file\. Repair or remove it"):
        prepare_records(dataset, settings)
    assert ray.num_cancelled <= 1
    made = prepare_records(dataset, replace(settings, on_error="skip"))
    assert bytes_of(made) == bytes_of(prepare_records(dataset, replace(records, on_error="skip")))


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match=r"records\.engine='slurm': wanted local or ray"):
        RecordsConfig(engine="slurm")
    with pytest.raises(ConfigError, match=r"reuse_from='/old': wanted null with records\.engine=ray"):
        RecordsConfig(engine="ray", reuse_from="/old")


@pytest.mark.slow
def test_a_node_that_is_killed_in_mid_encode_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = list(CASES.values())
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            many = {f"{k}": images[k % 10] for k in range(60)}
            write_images(tmp_path / "in" / split / name, many)
    dataset = FolderConfig(
        name="pets", root=str(tmp_path / "in"), label="class", images_per_record=4, tune_fraction=0.1
    )
    local = prepare_records(dataset, RecordsConfig(root=str(tmp_path / "local")))
    folder = tmp_path / "ray"
    killed: list[int] = []
    with two_raylets(monkeypatch) as raylets:
        import ray

        def kill_second() -> None:
            while (num := len(list(folder.glob("*/*/pcr/*.pcr")))) < 10:
                time.sleep(0.05)
            raylets.kill_second()
            killed.append(num)

        watch = threading.Thread(target=kill_second)
        ray.init(address=raylets.address, log_to_driver=False)
        try:
            watch.start()
            settings = RecordsConfig(root=str(folder), engine="ray", ray_address=raylets.address)
            made = prepare_records(dataset, settings)
            watch.join()
        finally:
            ray.shutdown()
    assert 10 <= killed[0] < 50, "in the middle of some sixty records"
    assert bytes_of(made) == bytes_of(local)
