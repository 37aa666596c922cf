"""The throughput model against measured rates: cells, files, tables, figures."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments.pcr.model_validation import ROW_COLUMNS, add_validation, compare, load_validation
from experiments.pcr.model_validation_page import report_validation, summarise
from pcr_exp.errors import RunError

pytestmark = pytest.mark.usefixtures("light_figures")

SETTINGS = {
    "dataset": "photos",
    "num_images": 64,
    "images_per_record": 8,
    "image_size": 96,
    "batch_size": 32,
    "num_workers": 1,
    "measure_s": 2.5,
}
IMAGE_BYTES = 2**20 / 100
"""At this size, 1 MiB/s is 100 images/s."""


def row(images_per_s: float, num_processes: int = 1, repeat: int = 0, **given: Any) -> dict[str, Any]:
    values = {
        "repeat": repeat,
        "num_processes": num_processes,
        "scan": "group_5",
        "decode": "libjpeg",
        "storage": "unlimited",
        "bandwidth_mib_per_s": None,
        "latency_ms": 0.0,
        "requests_per_s": None,
        "model_images_per_s": 200.0,
        "image_bytes": IMAGE_BYTES,
        "images_per_record": 8.0,
        "images_per_s": images_per_s,
        "slowest_images_per_s": images_per_s / num_processes,
        "num_images": 640,
        "cpu_s_per_image": 1 / 800,
    }
    return values | given


FREE = [row(rate, repeat=i, model_images_per_s=None) for i, rate in enumerate((590.0, 600.0, 640.0))]
SLOW = {"storage": "1 MiB/s", "bandwidth_mib_per_s": 1.0}


def frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows)[ROW_COLUMNS].astype(
        {"bandwidth_mib_per_s": float, "requests_per_s": float, "model_images_per_s": float}
    )


def only(cells: pd.DataFrame) -> pd.Series:
    (found,) = cells[~cells["is_calibration"]].to_dict("records")
    return pd.Series(found)


def test_one_process_without_limits_says_what_it_decodes_and_predicts_nothing() -> None:
    cells = compare(frame(FREE), num_cores=2)
    assert cells["is_calibration"].tolist() == [True]
    assert cells["predicted_images_per_s"].tolist() == [600.0]


@pytest.mark.parametrize(
    ("cell", "predicted", "bound"),
    [
        (row(195.0), 200.0, "compute"),
        (row(390.0, 2), 400.0, "compute"),
        (row(99.0, **SLOW), 100.0, "bandwidth"),
        (row(99.0, 4, **SLOW), 100.0, "bandwidth"),
        (row(1100.0, 2, model_images_per_s=None), 1200.0, "decode"),  # two processes of 600
        (row(1500.0, 4, model_images_per_s=None), 1600.0, "decode"),  # 2 cores at 1/800 s per image
        (row(160.0, storage="200 ms", latency_ms=200.0), 160.0, "in_flight"),  # 4 reads of 8 images in 0.2 s
        (row(640.0, 4, storage="200 ms", latency_ms=200.0), 640.0, "in_flight"),
        (row(24.0, 2, storage="3 requests/s", requests_per_s=3.0), 24.0, "requests"),
    ],
)
def test_a_cell_is_predicted_as_a_plan_would_be(cell: dict[str, Any], predicted: float, bound: str) -> None:
    found = only(compare(frame([*FREE, cell]), num_cores=2))
    assert found["predicted_images_per_s"] == pytest.approx(predicted)
    assert found["bound"] == bound
    assert found["error"] == pytest.approx(predicted / cell["images_per_s"] - 1)


def test_repeats_become_one_cell() -> None:
    rows = [row(rate, 2, repeat=i) for i, rate in enumerate((380.0, 400.0, 390.0))]
    found = only(compare(frame([*FREE, *rows]), num_cores=2))
    statistics = [found[f"images_per_s_{s}"] for s in ("median", "min", "max")]
    assert (found["n"], statistics) == (3, [390, 380, 400])


def test_decoders_are_cells_of_their_own() -> None:
    rows = [
        row(rate, count, decode=decode, model_images_per_s=None, cpu_s_per_image=1 / rate_of_one)
        for decode, rate_of_one in (("libjpeg", 1000.0), ("scaled", 4000.0))
        for count, rate in ((1, rate_of_one), (2, 2 * rate_of_one))
    ]
    cells = compare(frame(rows), num_cores=2)
    assert cells["n"].tolist() == [1, 1, 1, 1] and cells["error"].abs().max() == pytest.approx(0)
    assert cells["decode"].tolist() == ["libjpeg", "libjpeg", "scaled", "scaled"]


def test_what_one_process_decodes_must_be_measured() -> None:
    with pytest.raises(
        RunError, match=r"no rate of one process without limits was measured for group_5.*\[1\]"
    ):
        compare(frame([row(390.0, 2)]), num_cores=2)


def test_a_summary_counts_what_is_within_tolerance() -> None:
    rows = pd.DataFrame({"bound": ["a", "a", "b"], "num_processes": 1, "error": [0.04, -0.06, 0.01]})
    summary = summarise(rows, 0.05).set_index("bound")
    assert summary["num_within"].to_dict() == {"a": 1, "b": 1, "all": 2}
    assert summary.loc["a", "largest"] == pytest.approx(0.06)


def test_repeats_are_added_per_number_of_processes(tmp_path: Path) -> None:
    add_validation(tmp_path, frame(FREE), SETTINGS)
    add_validation(tmp_path, frame([row(400.0, 2)]), SETTINGS)
    add_validation(tmp_path, frame([row(195.0), row(390.0, 2)]), SETTINGS)
    found = load_validation(tmp_path)
    assert list(zip(found.rows["num_processes"], found.rows["repeat"], strict=True)) == [
        *((1, 0), (1, 1), (1, 2), (2, 0)),
        *((1, 3), (2, 1)),
    ]
    assert len(found.meta["measurements"]) == 3
    assert all(entry["command"] for entry in found.meta["measurements"])


def test_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    add_validation(tmp_path, frame(FREE), SETTINGS)
    with pytest.raises(RunError, match=r"differ in settings: wanted the same for all repeats\. Measure into"):
        add_validation(tmp_path, frame(FREE), SETTINGS | {"batch_size": 16})
    assert len(load_validation(tmp_path).rows) == 3


def test_a_damaged_measurement_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no complete measurement: .*validation.json is missing"):
        load_validation(tmp_path)
    add_validation(tmp_path, frame(FREE), SETTINGS)
    (tmp_path / "validation_rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RunError, match=r"has columns \['a', 'b'\]; wanted"):
        load_validation(tmp_path)
    (tmp_path / "validation.json").write_text("{")
    with pytest.raises(RunError, match="is damaged"):
        load_validation(tmp_path)


def test_the_report_has_every_cell_and_says_how_many_are_right(tmp_path: Path) -> None:
    rows = [*FREE, row(150.0), row(395.0, 2), row(99.0, 2, **SLOW)]
    add_validation(tmp_path, frame(rows), SETTINGS)
    files = report_validation(tmp_path, [])
    assert {path.name for path in files} == {
        "validation.md",
        *(
            f"{name}.{ending}"
            for name in ("predicted_vs_measured_rates", "measured_roofline")
            for ending in ("pdf", "png", "csv")
        ),
    }
    text = (tmp_path / "validation.md").read_text()
    assert "| compute | 1 | 1 | 0 within 5 % | 33.3 % | 33.3 % |" in text
    assert "| all | all | 3 | 2 within 5 % |" in text
    assert "| 1 MiB/s | 2 | 200 | group 5 | bandwidth | 100 | 99 | +1.0 % |" in text
    assert "time to accuracy" not in text
