"""Tables and figures from measurements of loaders."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments.loaders.page import (
    beside_to_markdown,
    charged_per_request,
    draw_file_per_image,
    draw_loaders,
    report_throughput,
    to_markdown,
)
from pcr_exp.analysis.throughput import (
    BOUND,
    FORMAT_COLUMNS,
    ROW_COLUMNS,
    Throughput,
    bounds,
    draw_throughput_vs_scan,
    load_throughput,
    summarise_throughput,
    write_throughput,
)
from pcr_exp.errors import RunError

pytestmark = pytest.mark.usefixtures("light_figures")

SETTINGS = {"dataset": "photos", "num_images": 100, "image_size": 224, "batch_size": 64, "num_workers": 2}
IMAGE_BYTES = {"baseline": 2**20, "group_1": 2**20 // 16, "image_folder_pil": 2**20}


def row(loader: str, images_per_s: float, repeat: int = 0, **given: Any) -> dict[str, Any]:
    num_images = 200
    values = {
        "repeat": repeat,
        "loader": loader,
        "decode": "pil" if loader.startswith("image") else "libjpeg",
        "storage": "unlimited",
        "model_images_per_s": None,
        "cores": math.nan,
        "bandwidth_mib_per_s": None,
        "latency_ms": 0.0,
        "requests_per_s": None,
        "num_epochs": 2,
        "num_images": num_images,
        "total_s": num_images / images_per_s,
        "images_per_s": images_per_s,
        "mib_per_s": images_per_s * IMAGE_BYTES[loader] / 2**20,
        "cpu_s_per_image": 2 / images_per_s,
        "wait_share": 1.0,
        "first_batch_s": 0.25,
        "epoch_bytes": 100 * IMAGE_BYTES[loader],
        "num_files": 100 if loader.startswith("image") else 4,
        "cached_share": 1.0,
        "bound_images_per_s": math.nan,
        "bound_cpu_s_per_image": math.nan,
    }
    return values | given


def page_of(measured: Throughput) -> str:
    return to_markdown(measured, summarise_throughput(measured.rows))


def measured_rows() -> pd.DataFrame:
    rows = []
    for repeat, factor in enumerate((1.0, 0.5, 1.2)):
        rows += [
            row("baseline", 800 * factor, repeat),
            row("group_1", 1600 * factor, repeat),
            row("image_folder_pil", 400 * factor, repeat),
            row("group_1", 950.0, repeat, model_images_per_s=1000.0, wait_share=0.05 * (repeat + 1)),
        ]
        for loader, rate in {"baseline": 24.0, "group_1": 390.0, "image_folder_pil": 23.0}.items():
            rows.append(row(loader, rate, repeat, storage="25 MiB/s", bandwidth_mib_per_s=25.0))
        for loader, rate in {"baseline": 700.0, "group_1": 1500.0, "image_folder_pil": 100.0}.items():
            rows.append(row(loader, rate, repeat, storage="100 requests/s", requests_per_s=100.0))
    return pd.DataFrame(rows)[ROW_COLUMNS]


def formats() -> pd.DataFrame:
    rows = [["files", 100, 100, 10**8, None, None], ["pcr", 100, 4, 94 * 10**6, 2.0, 3.5]]
    return pd.DataFrame(rows, columns=FORMAT_COLUMNS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_throughput(tmp_path, measured_rows(), formats(), {"ffcv": "too far away"}, SETTINGS)
    return tmp_path


def line(summary: pd.DataFrame, loader: str, storage: str = "unlimited") -> pd.Series:
    free = summary[summary["model_images_per_s"].isna()]
    (found,) = free[(free["loader"] == loader) & (free["storage"] == storage)].to_dict("records")
    return pd.Series(found)


def test_a_line_is_the_median_of_its_repeats() -> None:
    summary = summarise_throughput(measured_rows())
    assert len(summary) == 4 + 3 + 3
    baseline = line(summary, "baseline")
    assert baseline["n"] == 3 and baseline["image_bytes"] == 2**20
    spread = [baseline[f"images_per_s_{s}"] for s in ("median", "min", "max")]
    assert spread == [800, 400, 960]


def test_ratios_are_taken_within_a_repeat() -> None:
    summary = summarise_throughput(measured_rows())
    # The machine was half as fast in one repeat, which does not affect the ratio.
    ratios = [line(summary, "baseline")[f"ratio_{s}"] for s in ("median", "min", "max")]
    assert ratios == pytest.approx([2, 2, 2])
    assert line(summary, "image_folder_pil")["ratio_median"] == 1
    assert pd.isna(line(summary, "group_1", "25 MiB/s")["ratio_median"])
    rows = measured_rows()
    without = summarise_throughput(rows[rows["loader"] != "image_folder_pil"])
    assert without["ratio_median"].isna().all()


def test_a_bound_is_the_lesser_of_bytes_and_compute() -> None:
    found = bounds(summarise_throughput(measured_rows())).set_index("loader")["bound_images_per_s"].to_dict()
    assert found == {"baseline": 25.0, "group_1": 400.0, "image_folder_pil": 25.0}
    rows = measured_rows()
    fast = rows["bandwidth_mib_per_s"].notna()
    rows.loc[fast, "bandwidth_mib_per_s"] = 1000.0
    found = bounds(summarise_throughput(rows)).set_index("loader")["bound_images_per_s"].to_dict()
    assert found == {"baseline": 800.0, "group_1": 1600.0, "image_folder_pil": 400.0}


def test_what_is_written_is_read_back(folder: Path) -> None:
    found = load_throughput(folder)
    pd.testing.assert_frame_equal(found.rows, measured_rows(), check_dtype=False)
    pd.testing.assert_frame_equal(found.formats, formats(), check_dtype=False)
    assert found.absent == {"ffcv": "too far away"}
    assert found.meta["settings"] == SETTINGS
    assert {"git_sha", "git_dirty", "cpu", "num_cores", "packages", "command", "kernel"} <= found.meta.keys()


def test_ours_stands_beside_its_bound_and_one_core(tmp_path: Path) -> None:
    rows = []
    for repeat, factor in enumerate((1.0, 0.5)):
        bound = {"bound_images_per_s": 1000.0 * factor, "bound_cpu_s_per_image": 0.002 / factor}
        rows.append(row("group_1", 960.0 * factor, repeat, **bound))
        rows.append(row("group_1", 500.0 * factor, repeat, cores=1))
        rows.append(row("image_folder_pil", 400.0 * factor, repeat))
    write_throughput(tmp_path, pd.DataFrame(rows)[ROW_COLUMNS], formats(), {}, {**SETTINGS, "counted": "all"})
    summary = summarise_throughput(load_throughput(tmp_path).rows)
    whole, one = (summary[summary["cores"].isna() == on_all].iloc[0] for on_all in (True, False))
    assert whole["bound_share_median"] == pytest.approx(0.96) and whole["ratio_median"] == pytest.approx(2.4)
    assert one["cores_ratio_min"] == one["cores_ratio_max"] == pytest.approx(1.92)
    assert math.isnan(whole["cores_ratio_median"]) and math.isnan(one["ratio_median"])
    text = page_of(load_throughput(tmp_path))
    assert "Counted: all." in text and "| 0.960 (0.960 to 0.960) |" in text
    assert {path.name for path in report_throughput(tmp_path)} >= {"loaders.png"}


def test_baseline_records_stand_beside_peers_that_filter_as_they_do() -> None:
    rows = []
    for repeat, factor in enumerate((1.0, 0.5)):
        rows.append(row("baseline", 900.0 * factor, repeat, decode="scaled, filtered"))
        rows.append(row("baseline", 1000.0 * factor, repeat, decode="scaled"))
        rows.append(row("image_folder_pil", 450.0 * factor, repeat))
        rows.append(row("image_folder_pil", 800.0 * factor, repeat) | {"loader": "tfrecord"})
    text = beside_to_markdown(pd.DataFrame(rows)[ROW_COLUMNS])
    assert "| ImageFolder, PIL | both | 2.00 (2.00 to 2.00) | 2.00 (2.00 to 2.00) |" in text
    assert "| TFRecord, tf.data | neither | 1.25 (1.25 to 1.25) |" in text
    assert beside_to_markdown(pd.DataFrame(rows[:2])[ROW_COLUMNS]) == ""


def test_a_measurement_without_bounds_says_how_it_counts(folder: Path) -> None:
    rows = pd.read_csv(folder / "throughput.csv").assign(**dict.fromkeys(BOUND))
    rows.to_csv(folder / "throughput.csv", index=False)
    found = load_throughput(folder)
    assert found.rows[BOUND].isna().all(axis=None)
    assert "from opening the loader" in page_of(found) and "alone" not in page_of(found)


@pytest.mark.parametrize("name", ["throughput.csv", "formats.csv", "throughput.json"])
def test_half_a_measurement_is_refused(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(
        RunError, match=rf"no complete measurement: .*{name} is missing.*experiments\.throughput"
    ):
        load_throughput(folder)


@pytest.mark.parametrize("name", ["throughput.csv", "formats.csv", "throughput.json"])
def test_a_damaged_measurement_is_named(name: str, folder: Path) -> None:
    (folder / name).write_text("")
    with pytest.raises(RunError, match=r"is damaged: .*experiments\.throughput"):
        load_throughput(folder)


@pytest.mark.parametrize("name", ["throughput.csv", "formats.csv"])
def test_other_columns_are_refused(name: str, folder: Path) -> None:
    table = pd.read_csv(folder / name)
    table.drop(columns=table.columns[-1]).to_csv(folder / name, index=False)
    with pytest.raises(RunError, match=rf"{name} has columns .*wanted"):
        load_throughput(folder)


def test_the_table_has_every_loader_and_names_the_absent(folder: Path) -> None:
    text = page_of(load_throughput(folder))
    assert "| ImageFolder, PIL | pil | triangle | 400 (200 to 480) | 1.00 (1.00 to 1.00) |" in text
    assert "| baseline | libjpeg | none | 800 (400 to 960) | 2.00 (2.00 to 2.00) |" in text
    assert "* FFCV, original bytes: absent, too far away" in text
    assert "wait share at 1,000 images/s" in text and "| 10% |" in text
    assert "| 25 MiB/s | group 1 |" in text
    assert "| pcr | 4 | 94 MB | 940 | 20 | 35 |" in text
    assert "n = 3 interleaved repeats" in text and "100 images" in text


def test_the_table_names_loaders_that_no_throttle_can_hold(tmp_path: Path) -> None:
    rows = measured_rows()
    write_throughput(tmp_path / "all", rows, formats(), {}, SETTINGS)
    assert "without a throttle only" not in page_of(load_throughput(tmp_path / "all"))
    free = rows[(rows["loader"] == "image_folder_pil") & (rows["storage"] == "unlimited")]
    rows = pd.concat([rows, free.assign(loader="dali", decode="dali"), free.assign(loader="webdataset")])
    write_throughput(tmp_path / "some", rows, formats(), {}, SETTINGS)
    assert "holds the throttle: DALI, CPU; WebDataset." in page_of(load_throughput(tmp_path / "some"))


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([0.25, 1.0], "25 to 100 % of the files' bytes in the page cache"),
        ([None, 1.0], "is not known: the kernel tells it to the files' owner only"),
    ],
)
def test_the_table_says_how_warm_the_files_were(shares: list, said: str, tmp_path: Path) -> None:
    rows = measured_rows().head(2).assign(cached_share=shares)
    write_throughput(tmp_path, rows, formats(), {}, SETTINGS)
    assert said in page_of(load_throughput(tmp_path))


def test_a_single_repeat_shows_no_spread(tmp_path: Path) -> None:
    rows = measured_rows()
    write_throughput(tmp_path, rows[rows["repeat"] == 0], formats(), {}, SETTINGS)
    assert "| baseline | libjpeg | none | 800 | 2.00 |" in page_of(load_throughput(tmp_path))


def test_every_figure_is_drawn_with_its_numbers(folder: Path) -> None:
    names = {path.name for path in report_throughput(folder)}
    figures = ("loaders", "throughput_vs_scan", "file_per_image")
    assert names == {"throughput.md", "throughput_summary.csv"} | {
        f"{figure}.{ending}" for figure in figures for ending in ("pdf", "png", "csv")
    }
    assert all((folder / name).stat().st_size > 0 for name in names)


def test_peers_alone_have_no_figure_per_scan(tmp_path: Path) -> None:
    rows = measured_rows()
    peers = rows[(rows["loader"] == "image_folder_pil") & (rows["storage"] == "unlimited")]
    write_throughput(tmp_path, peers, formats(), {}, SETTINGS)
    names = {path.stem for path in report_throughput(tmp_path)}
    assert names == {"throughput", "throughput_summary", "loaders"}


def test_points_and_bounds_are_where_the_numbers_are() -> None:
    summary = summarise_throughput(measured_rows())
    (ax,) = draw_throughput_vs_scan(summary).axes
    drawn = {(float(x), float(y)) for art in ax.lines for x, y in zip(*art.get_data(), strict=True)}
    assert {(0, 800), (1, 1600), (0, 24), (1, 390), (0, 25), (1, 400)} <= drawn
    assert ax.get_yscale() == "log"


@pytest.mark.parametrize(
    ("rates", "wanted"), [((1513.0, 1574.0), {"1,000", "2,000"}), ((20.0, 1900.0), {"20", "50", "1,000"})]
)
def test_rates_are_written_out_on_the_axis(rates: tuple[float, float], wanted: set[str]) -> None:
    rows = pd.DataFrame([row("baseline", rates[0]), row("group_1", rates[1])])[ROW_COLUMNS]
    figure = draw_throughput_vs_scan(summarise_throughput(rows))
    figure.canvas.draw()
    (ax,) = figure.axes
    low, high = ax.get_ylim()
    shown = {
        label.get_text(): low <= label.get_position()[1] <= high
        for label in ax.get_yticklabels(which="both")
        if label.get_text()
    }
    assert wanted <= {text for text, inside in shown.items() if inside}
    assert all(text.replace(",", "").isdecimal() for text in shown)


def test_a_panel_per_decoder() -> None:
    rows = measured_rows()
    other = rows[rows["decode"] == "libjpeg"].assign(decode="scaled")
    figure = draw_throughput_vs_scan(summarise_throughput(pd.concat([rows, other])))
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        "decode=libjpeg",
        "decode=scaled",
    ]


def test_bars_are_medians() -> None:
    summary = summarise_throughput(measured_rows())
    (ax,) = draw_loaders(summary).axes
    assert [bar.get_width() for bar in ax.patches] == [800, 1600, 400]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["baseline", "group 1", "ImageFolder, PIL"]
    (ax,) = draw_file_per_image(summary).axes
    assert [bar.get_width() for bar in ax.patches] == [700, 1500, 100]
    assert charged_per_request(summary[summary["storage"] == "unlimited"]).empty


def test_provenance_is_json(folder: Path) -> None:
    assert json.loads((folder / "throughput.json").read_text())["packages"]["torch"]
