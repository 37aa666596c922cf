"""Predictions for a described cluster, with their tables and figures."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from composing import compose

from pcr_exp.analysis.plan import (
    PREDICTION_COLUMNS,
    affordable,
    epoch_traffic,
    planned_data,
    predict,
    worker_counts,
)
from pcr_exp.analysis.plan_page import report_plan
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.throughput import PlanConfig, PlannedDataConfig
from pcr_exp.errors import ConfigError, RecordError
from pcr_exp.records.index import RecordEntry, RecordIndex, dump_index

pytestmark = pytest.mark.usefixtures("light_figures")

CONFIGS = Path(__file__).parents[2] / "configs"
PLANS = sorted(path.stem for path in (CONFIGS / "plan").glob("*.yaml"))
SIZES = {"baseline": 100_000.0, "group_1": 5_000.0, "group_5": 50_000.0}


def data(**given: Any) -> PlannedDataConfig:
    values: dict[str, Any] = {"num_images": 36_000, "images_per_record": 10, "image_bytes": SIZES}
    return PlannedDataConfig(name="made_up", **(values | given))


def plan(**given: Any) -> PlanConfig:
    values: dict[str, Any] = {
        "name": "made_up",
        "workers": 2,
        "cores_per_worker": 4,
        "model_images_per_s": {"resnet18": 100.0},
        "decode_images_per_s": {"baseline": 1000.0, "group_1": 1000.0, "group_5": 500.0},
        "storage": StorageConfig(name="disk", bandwidth_mib_per_s=1e7 / 2**20),
        "data": data(),
        "out": "unused",
    }
    return PlanConfig(**(values | given))


def level(predictions: pd.DataFrame, scan: str) -> pd.Series:
    return predictions.set_index("scan").loc[scan]


def test_storage_is_shared_and_accelerators_add_up() -> None:
    predictions = predict(plan(), [2])
    assert list(predictions.columns) == PREDICTION_COLUMNS
    baseline, first = level(predictions, "baseline"), level(predictions, "group_1")
    assert (baseline["images_per_s"], baseline["bound"]) == (pytest.approx(100), "bandwidth")
    assert (first["images_per_s"], first["bound"]) == (200, "compute")
    assert first["speedup_over_baseline"] == pytest.approx(2)
    assert first["epochs_per_h"] == pytest.approx(20)
    assert first["mib_per_s"] == pytest.approx(200 * 5000 / 2**20)
    assert first["requests_per_s"] == 20
    assert pd.isna(first["hours_to_accuracy"])


def test_decoding_and_requests_can_be_the_limit() -> None:
    slow = plan(decode_images_per_s={"baseline": 5.0, "group_1": 1000.0})
    assert level(predict(slow, [1]), "baseline")[["images_per_s", "bound"]].tolist() == [20, "decode"]
    few = plan(storage=StorageConfig(name="disk", requests_per_s=3))
    assert set(predict(few, [2])["bound"]) == {"requests"}
    assert set(predict(few, [2])["images_per_s"]) == {30}


def test_too_few_reads_in_flight_are_the_limit() -> None:
    far = StorageConfig(name="far", bandwidth_mib_per_s=100, latency_ms=500)
    one = predict(plan(storage=far, reads_in_flight=1), [1])
    first = level(one, "group_1")
    assert first["bound"] == "in_flight"
    assert first["images_per_s"] == pytest.approx(10 / (0.5 + 50_000 / (100 * 2**20)))
    assert first["requests_in_flight"] == pytest.approx(1)
    # By default, our loader has as many reads in flight as needed.
    assert "in_flight" not in set(predict(plan(storage=far), [1])["bound"])


def test_a_disk_that_seeks_for_every_record_is_told_from_one_that_waits() -> None:
    """With enough reads in flight, latency costs nothing. Seeks always cost their time."""
    limits = {"bandwidth_mib_per_s": 1e7 / 2**20}
    # Reading 10 images takes 100 ms at baseline and 5 ms at group 1, where the 40 ms of waiting dominate.
    model = {
        "model_images_per_s": {"resnet18": 1e6},
        "decode_images_per_s": {"baseline": 1e6, "group_1": 1e6},
    }
    far, disk = (
        predict(plan(storage=StorageConfig(name="disk", **limits, **wait), **model), [1])
        for wait in ({"latency_ms": 40}, {"seek_ms": 40})
    )
    assert level(far, "baseline")["images_per_s"] == pytest.approx(100)
    assert level(disk, "baseline")["images_per_s"] == pytest.approx(10 / (0.1 + 0.04))
    assert level(far, "group_1")["images_per_s"] == pytest.approx(2000)
    assert level(disk, "group_1")["images_per_s"] == pytest.approx(10 / (0.005 + 0.04))
    assert disk.set_index("scan")["bound"].to_dict() == {"baseline": "bandwidth", "group_1": "seeks"}
    assert level(disk, "group_1")["requests_in_flight"] == pytest.approx(1), "the head serves one at a time"
    assert disk["seek_s_per_image"].tolist() == [0.004, 0.004]


def test_a_disk_without_a_bandwidth_gives_what_its_seeks_allow() -> None:
    disk = plan(storage=StorageConfig(name="disk", seek_ms=100), model_images_per_s={"resnet18": 1e6})
    predictions = predict(disk, [1])
    assert set(predictions["bound"]) == {"seeks"}
    assert predictions["images_per_s"].tolist() == pytest.approx([100] * 3)


@pytest.mark.parametrize("seek_ms", [1.0, 200.0])
def test_a_disk_has_a_roofline_whether_or_not_its_seeks_leave_a_knee(tmp_path: Path, seek_ms: float) -> None:
    disk = StorageConfig(name="disk", bandwidth_mib_per_s=10, seek_ms=seek_ms)
    files = report_plan(plan(storage=disk, out=str(tmp_path)))
    assert tmp_path / "roofline.png" in files
    assert f"{seek_ms:g} ms per seek" in (tmp_path / "predictions.md").read_text()


def test_reads_in_flight_of_the_storage_are_planned_with() -> None:
    far = StorageConfig(name="far", bandwidth_mib_per_s=100, latency_ms=500, reads_in_flight=1)
    assert level(predict(plan(storage=far), [1]), "group_1")["bound"] == "in_flight"


def test_hours_follow_from_epochs() -> None:
    hours = predict(plan(epochs_to_accuracy={"baseline": 90, "group_1": 100}), [2])["hours_to_accuracy"]
    assert hours.tolist()[:2] == pytest.approx([9.0, 5.0])
    assert pd.isna(hours.tolist()[2])


def test_dollars_follow_from_the_bytes_and_requests_of_an_epoch() -> None:
    billed = plan(cost_per_gb=0.5, cost_per_1000_requests=10, epochs_to_accuracy={"baseline": 90})
    predictions = predict(billed, [2])
    assert predictions["bytes_per_epoch"].tolist() == [36_000 * size for size in SIZES.values()]
    assert set(predictions["requests_per_epoch"]) == {3600}, "a record is one read at every group"
    # 3.6, 0.18 and 1.8 GB at half a dollar per GB, and 3,600 requests at a cent each.
    assert predictions["dollars_per_epoch"].tolist() == pytest.approx([37.8, 36.09, 36.9])
    assert predictions["dollars_to_accuracy"][0] == pytest.approx(90 * 37.8)
    assert predictions["dollars_to_accuracy"].isna().tolist() == [False, True, True]
    assert epoch_traffic(11, 10, 3.0) == (33, 2), "the last record is a request too"
    assert epoch_traffic(15, 15 / 13, 1.0) == (15, 13), "which is the mean of 13 records"


def test_costs_are_shown_only_where_something_is_billed(tmp_path: Path) -> None:
    def page(**costs: float) -> str:
        report_plan(plan(out=str(tmp_path), **costs))
        return (tmp_path / "predictions.md").read_text()

    assert "$" not in page() and "GB/epoch" not in page()
    billed = page(cost_per_gb=0.5)
    assert "Every epoch is read from the storage, at $0.5 per GB." in billed
    assert "| GB/epoch | requests/epoch | $/epoch |" in billed and "$ to accuracy" not in billed
    assert "| 3.6 | 3,600 | 1.8 |" in billed


def test_the_more_workers_the_lower_the_group_that_they_afford() -> None:
    counts = worker_counts(64)
    assert counts == [1, 2, 4, 8, 16, 32, 64]
    best = affordable(predict(plan(), counts)).set_index("workers")
    assert best["scan"].tolist() == ["group_5", "group_5", *["group_1"] * 5]
    assert best["waits"].tolist() == [False] * 5 + [True] * 2
    assert best.loc[64, "images_per_s"] == pytest.approx(2000)


def test_numbers_come_from_the_index_of_records(tmp_path: Path) -> None:
    for encoding, ends in (("pcr", (100, 300)), ("baseline", (400,))):
        index = RecordIndex(
            dataset="made_up",
            split="train",
            encoding=encoding,
            fingerprint="0",
            num_groups=len(ends),
            classes={"class": ["a"]},
            records=[RecordEntry("0.pcr", 4, ends, 30), RecordEntry("1.pcr", 2, ends, 30)],
        )
        (tmp_path / encoding).mkdir()
        (tmp_path / encoding / "index.json").write_bytes(dump_index(index))
    found = planned_data(
        PlannedDataConfig(name="made_up", records=str(tmp_path)), ["baseline", "group_1", "group_2"]
    )
    assert (found.num_images, found.images_per_record) == (6, 3)
    assert found.image_bytes == {"baseline": 800 / 6, "group_1": 200 / 6, "group_2": 100}
    with pytest.raises(RecordError, match="no records can be opened"):
        planned_data(PlannedDataConfig(name="made_up", records=str(tmp_path / "nowhere")), ["baseline"])


def test_a_level_without_a_size_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"plan.data.image_bytes lacks group_2: wanted the mean bytes"):
        predict(plan(decode_images_per_s={"baseline": 1.0, "group_2": 1.0}), [1])
    with pytest.raises(ConfigError, match="'group_11' is not a scan level"):
        predict(plan(decode_images_per_s={"baseline": 1.0, "group_11": 1.0}), [1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": 0}, "plan.workers=0: wanted at least 1"),
        ({"max_workers": 0}, "plan.max_workers=0: wanted at least 1"),
        ({"cores_per_worker": 0}, "plan.cores_per_worker=0: wanted cores above 0"),
        ({"model_images_per_s": {}}, "plan.model_images_per_s={}: wanted at least one rate"),
        ({"decode_images_per_s": {"baseline": -1}}, "plan.decode_images_per_s=.*: wanted at least one rate"),
        ({"decode_images_per_s": {"group_1": 1}}, "plan.decode_images_per_s=.*: wanted baseline among"),
        ({"reads_in_flight": 0}, "plan.reads_in_flight=0: wanted null or at least 1"),
        ({"epochs_to_accuracy": {"baseline": 0}}, "plan.epochs_to_accuracy=.*: wanted epochs above 0"),
        ({"cost_per_gb": -1}, "plan.cost_per_gb=-1: wanted dollars, 0 or more"),
        ({"cost_per_1000_requests": float("inf")}, "plan.cost_per_1000_requests=inf: wanted dollars, 0 or"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"records": "somewhere"},
            "plan.data.records='somewhere': wanted a folder of records, or null together",
        ),
        ({"num_images": None}, "plan.data.records=None: wanted a folder of records, or null together"),
        ({"image_bytes": {"baseline": 0}}, "plan.data.image_bytes=.*: wanted sizes above 0"),
        ({"image_bytes": {"group_1": 1}}, "plan.data.image_bytes=.*: wanted baseline among"),
    ],
)
def test_data_that_cannot_be_planned_for_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        data(**given)


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_composes_and_is_reported(name: str, tmp_path: Path) -> None:
    config = compose("throughput", f"plan={name}")
    assert config.plan is not None and config.plan.name == name
    assert config.plan.out == f"outputs/throughput_model/{name}"
    config.plan.out = str(tmp_path)
    files = report_plan(config.plan)
    assert {path.name for path in files} == {
        *("predictions.csv", "predictions.md"),
        *(f"{figure}.{ending}" for figure in ("roofline", "workers") for ending in ("pdf", "png", "csv")),
    }
    assert all(path.stat().st_size for path in files)
    growing = pd.read_csv(tmp_path / "workers.csv")
    assert growing["workers"].max() == 1024
    text = (tmp_path / "predictions.md").read_text()
    assert "Predicted, not measured." in text
    assert ("hours to accuracy" in text) == bool(config.plan.epochs_to_accuracy)


def test_the_papers_cluster_gains_what_the_paper_says() -> None:
    """Half the bytes give up to about twice the speed if storage is the limit (abstract)."""
    config = compose("throughput", "plan=paper_cluster")
    assert config.plan is not None
    predictions = predict(config.plan, [config.plan.workers])
    light = predictions[predictions["model"] == "shufflenet_v2_x1_0"]
    assert 1.8 < level(light, "group_5")["speedup_over_baseline"] < 2.2


def test_storage_without_bandwidth_has_no_roofline(tmp_path: Path) -> None:
    free = plan(storage=StorageConfig(name="free", requests_per_s=10), out=str(tmp_path / "out"))
    assert {path.name for path in report_plan(free)} == {"predictions.csv", "predictions.md"}
