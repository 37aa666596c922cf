"""The measurements that are made, their files, and their order."""

from pathlib import Path
from typing import Any

import pytest
from throughput_jobs import folder_config, job, opened, write_images

from experiments.loaders import contest as plan
from experiments.loaders.contest import absent_peers, copied_groups, plan_jobs
from experiments.loaders.formats import build_copies, build_once, by_encoding, original_files, quality_for
from experiments.loaders.peers.catalogue import OURS, absence, decoder_label, filter_of
from experiments.loaders.peers.catalogue import PEERS as CATALOGUE
from experiments.pcr.shared_readers import shared_jobs, window_images
from pcr_exp.config.loader import LoaderConfig, StorageConfig
from pcr_exp.config.scan import scan_of
from pcr_exp.config.throughput import PEERS, ThroughputConfig
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.throughput.job import num_epochs


def config(**given: Any) -> ThroughputConfig:
    settings: dict[str, Any] = {
        "dataset": folder_config(Path("pictures")),
        "scans": ["baseline", "group_1", "group_10"],
        "peers": ["image_folder_pil", "image_folder_torchvision"],
        "model_images_per_s": None,
    }
    return ThroughputConfig(**(settings | given))


def test_everything_is_measured_free_paced_and_throttled() -> None:
    jobs = plan_jobs(
        config(
            model_images_per_s=100.0, bandwidths_mib_per_s=[5.0], latencies_ms=[20.0], requests_per_s=[9.0]
        )
    )
    free = [j for j in jobs if j.storage.name == "unlimited" and j.model_images_per_s is None]
    assert [j.loader for j in free] == [
        *("baseline", "group_1", "group_10"),
        *("image_folder_pil", "image_folder_torchvision"),
    ]
    assert [j.decode for j in free] == ["scaled", "scaled", "scaled", "pil", "torchvision"]
    assert sum(j.model_images_per_s == 100 for j in jobs) == 5
    throttled = [j for j in jobs if j.storage.name != "unlimited"]
    assert [j.storage.name for j in throttled[::4]] == ["5 MiB/s", "20 ms", "9 requests/s"]
    assert {j.loader for j in throttled} == {"baseline", "group_1", "group_10", "image_folder_pil"}


def test_ours_is_measured_on_one_core_too_if_asked() -> None:
    jobs = plan_jobs(config(one_core=True, loader=LoaderConfig(num_workers=2)))
    confined = [j for j in jobs if j.cores is not None]
    assert [j.loader for j in confined] == ["baseline", "group_1", "group_10"]
    assert {(j.cores, j.settings.num_workers) for j in confined} == {(1, 1)}
    assert {j.settings.num_workers for j in jobs if j.cores is None} == {2}


def test_what_another_interpreter_has_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "absence", lambda _: "too far away")
    assert absent_peers(config(peers_python="/other/python")) == {}


def test_every_decode_is_measured() -> None:
    jobs = plan_jobs(config(decodes=["libjpeg"], peers=[]))
    assert [(j.loader, j.decode) for j in jobs] == [
        (scan, "libjpeg") for scan in ("baseline", "group_1", "group_10")
    ]


def test_ours_is_measured_with_and_without_the_resize_filter_beside_peers_as_they_are() -> None:
    jobs = plan_jobs(config(decodes=["scaled"], antialiases=[True, False], scans=["group_1"]))
    free = [j for j in jobs if j.storage.name == "unlimited" and j.model_images_per_s is None]
    labels = [decoder_label(j.loader, j.decode, antialias=j.settings.antialias) for j in free]
    assert labels == ["scaled, filtered", "scaled", "pil", "torchvision"]
    assert all(j.settings.decode == "scaled" for j in free[:2])
    assert [filter_of(j.loader, label) for j, label in zip(free, labels, strict=True)] == [
        *("triangle", "none"),
        *("triangle", "triangle"),
    ]


def test_the_loader_s_own_choice_of_filter_is_the_default() -> None:
    for antialias in (True, False):
        jobs = plan_jobs(config(loader=LoaderConfig(antialias=antialias), peers=[]))
        assert {j.settings.antialias for j in jobs} == {antialias}


def test_what_is_asked_for_must_exist() -> None:
    for key, given, wanted in (
        ("decodes", "magic", "some of libjpeg, unsmoothed, scaled"),
        ("scans", "group_99", "scan levels: baseline, or group_1 to group_10"),
        ("peers", "imagefolder", "some of image_folder_pil, "),
    ):
        with pytest.raises(ConfigError, match=rf"^{key}=\['{given}'\]: wanted {wanted}"):
            config(**{key: [given]})
    with pytest.raises(ConfigError, match="'group_99' is not a scan level"):
        scan_of("group_99")
    with pytest.raises(ConfigError, match="'imagefolder' is no loader"):
        absence("imagefolder")


def test_the_settings_know_every_loader_of_the_catalogue() -> None:
    assert list(PEERS) == list(CATALOGUE)


def test_absent_peers_come_with_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "absence", lambda name: "too far away" if name == "ffcv" else None)
    assert absent_peers(config(peers=["image_folder_pil", "ffcv"])) == {"ffcv": "too far away"}


def test_static_copies_are_of_the_groups_below_the_whole() -> None:
    scans = ["baseline", "group_1", "group_5", "group_10"]
    assert copied_groups(config(scans=scans)) == [1, 5]
    assert copied_groups(config(scans=scans, static_copies=False)) == []


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [
        ({}, 20),
        ({"bandwidth_mib_per_s": 10.0}, 2),
        ({"requests_per_s": 100.0}, 4),
        ({"latency_ms": 10.0}, 8),
        ({"seek_ms": 10.0}, 4),
        ({"bandwidth_mib_per_s": 0.001}, 1),
    ],
)
def test_epochs_fill_the_time_that_a_limit_leaves(limit: dict[str, float], wanted: int) -> None:
    slow = job(storage=StorageConfig(name="slow", **limit), settings=LoaderConfig(num_workers=2))
    found = num_epochs(slow, measure_s=2.0, free_epoch_s=0.1, epoch_bytes=10 * 2**20, num_requests=50)
    assert found == wanted


def test_all_formats_hold_the_images_that_records_can_store(tmp_path: Path) -> None:
    workspace, records = opened(tmp_path)
    names = {Path(image.path).name for image in workspace.images}
    assert "broken.jpg" not in names and len(workspace.images) == records.num_images == 12
    assert records.build_s is not None and records.build_s > 0
    baseline, pcr = sorted(by_encoding(workspace, records), key=lambda built: built.format)
    assert (baseline.build_s, pcr.build_s) == (None, records.build_s)
    files = original_files(workspace)
    assert files.num_bytes < baseline.num_bytes < files.num_bytes + 10_000
    assert sum(built.num_bytes for built in (baseline, pcr)) < records.num_bytes


def test_a_format_is_built_once(tmp_path: Path) -> None:
    workspace, records = opened(tmp_path)
    assert opened(tmp_path)[1] == records
    calls = []

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "file").write_bytes(b"1234")

    first = build_once(workspace, "mine", build)
    assert build_once(workspace, "mine", build) == first
    assert len(calls) == 1 and (first.num_files, first.num_bytes) == (1, 4)


def test_what_a_build_left_unfinished_is_removed(tmp_path: Path) -> None:
    workspace, _ = opened(tmp_path)
    (workspace.format_folder("mine")).mkdir()
    (workspace.format_folder("mine") / "half").write_bytes(b"1234")
    assert build_once(workspace, "mine", lambda _: None).num_files == 0


def test_an_encode_that_was_continued_has_no_time(tmp_path: Path) -> None:
    workspace, _ = opened(tmp_path)
    (workspace.folder / f"{OURS}.json").unlink()
    _, records = opened(tmp_path)
    assert records.build_s is records.build_cpu_s is None


def test_copies_are_as_large_as_scan_groups(tmp_path: Path) -> None:
    workspace, _ = opened(tmp_path)
    copies = build_copies(workspace, [1, 5], num_workers=1)
    assert [copy.format.rpartition("_group_")[2] for copy in copies[:2]] == ["1", "5"]
    assert copies[0].num_bytes < copies[1].num_bytes
    files = original_files(workspace)
    assert copies[2].num_bytes == files.num_bytes + copies[0].num_bytes + copies[1].num_bytes
    assert copies[2].num_files == 3 * files.num_files
    assert build_copies(workspace, [], num_workers=1) == []


def test_quality_is_the_highest_that_fits(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    mean = sum(Path(image.path).stat().st_size for image in images) / len(images)
    assert quality_for(images, 1.0) == 1
    assert quality_for(images, 1e9) == 95
    assert 80 <= quality_for(images, mean) <= 91


def test_processes_that_share_are_free_then_paced_then_throttled() -> None:
    shared = config(
        scans=["baseline", "group_1"],
        batch_size=8,
        model_images_per_s=200.0,
        bandwidths_mib_per_s=[4.0],
        latencies_ms=[200.0],
        requests_per_s=[],
    )
    assert window_images(shared) == 8, "two records of four images, a batch"
    jobs = shared_jobs(shared)
    assert [(job.loader, job.storage.name, job.model_images_per_s) for job in jobs] == [
        *((scan, "unlimited", None) for scan in ("baseline", "group_1")),
        *((scan, "unlimited", 200.0) for scan in ("baseline", "group_1")),
        *((scan, "4 MiB/s", 200.0) for scan in ("baseline", "group_1")),
        *((scan, "200 ms", 200.0) for scan in ("baseline", "group_1")),
    ]


def test_windows_are_whole_records_and_whole_batches() -> None:
    assert window_images(config(batch_size=6)) == 12
    assert window_images(config(batch_size=4)) == 4


def test_rates_of_a_model_s_speed_need_a_model() -> None:
    with pytest.raises(ConfigError, match="model_images_per_s=null: wanted a rate"):
        shared_jobs(config(batch_size=8, model_images_per_s=None))
