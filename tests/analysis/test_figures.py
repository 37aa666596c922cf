"""Figures draw the numbers they are given, share one style, and are saved with those numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from drawn import cut_markers, overlapping_ticks
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from PIL import Image
from skimage.data import astronaut

from pcr_exp.analysis.accuracy import (
    draw_accuracy_vs_epoch,
    draw_time_to_accuracy,
    mean_over_seeds,
    with_seconds,
)
from pcr_exp.analysis.caption import NOT_TIMED, Caption
from pcr_exp.analysis.figure import (
    MAX_PNG_BYTES,
    new_figure,
    panels,
    percent_axis,
    points_axis,
    save_figure,
    ticks_in_bytes,
)
from pcr_exp.analysis.frame import RUN_COLUMNS, SHARE, eval_curves, run_frame, with_more
from pcr_exp.analysis.marks import chance_lines, upright_chance_lines
from pcr_exp.analysis.one_run import draw_training_curve
from pcr_exp.analysis.quality import draw_bytes_per_group, draw_decode_modes, draw_mssim_vs_scan
from pcr_exp.analysis.runs import read_runs
from pcr_exp.analysis.statistics import half_width
from pcr_exp.analysis.style import INK, OTHER_STYLES, group_color, group_marker, style
from pcr_exp.analysis.tables import kilobytes
from pcr_exp.runs.rows import read_rows

BYTES = [(100, 200), (900, 2_500), (3e3, 40e3), (500, 5e6), (1e3, 2e9), (80e6, 1.1e9)]


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> pd.DataFrame:
    root = tmp_path_factory.mktemp("curves")
    for seed in (0, 1):
        make_run(root, "baseline", seed=seed, epoch_s=40)
        make_run(root, "group_2", seed=seed, epoch_s=10 + seed, top1=(0.2 + seed / 10, 0.5, 0.8))
    return with_seconds(eval_curves(run_frame(read_runs(root)))).assign(majority_share=0.25, num_classes=8)


@pytest.fixture
def quality() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    sizes = rng.lognormal(11, 0.5, 40)
    shares = {1: 0.06, 2: 0.14, 5: 0.47, 10: 1.0}
    return pd.DataFrame(
        {
            "dataset": "imagenet",
            "id": str(i),
            "group": group,
            "bytes": int(size * share),
            "ms_ssim": share**0.1,
            "num_scales": 5,
            "ssim": share**0.2,
        }
        for i, size in enumerate(sizes)
        for group, share in shares.items()
    )


def line_ending_with(ax: Axes, label: str) -> np.ndarray:
    """Return the [n, 2] points of the line whose legend entry begins with `label`."""
    line = next(line for line in ax.lines if str(line.get_label()).startswith(label))
    return np.asarray(line.get_xydata())


def texts(ax: Axes) -> str:
    found = [text.get_text() for text in ax.texts]
    return "\n".join([ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel(), *found])


def test_time_to_accuracy_draws_the_mean_of_seeds_off_the_eval_clock(
    curves: pd.DataFrame,
) -> None:
    (ax,) = draw_time_to_accuracy(curves).axes
    assert line_ending_with(ax, "group 2").tolist() == pytest.approx(
        np.array([[10.5, 0.25], [21, 0.5], [31.5, 0.8]])
    )
    assert line_ending_with(ax, "baseline")[:, 0].tolist() == [40, 80, 120]
    assert len(ax.lines) == 2 + 3  # means of two levels; lines for target, majority and chance
    assert len(ax.collections) == 2, "a band for each level: the 95 % interval of its mean"
    vertices = ax.collections[1].get_paths()[0].vertices
    first = np.asarray(vertices)[np.isclose(np.asarray(vertices)[:, 0], 10.5), 1]
    assert first.max() - first.min() == pytest.approx(2 * half_width([0.2, 0.3]))
    assert first.min() < ax.get_ylim()[0] < 0.125, "axes hold every run and line, not all of a wide band"
    assert "majority\n25%" in texts(ax) and "chance\n12.5%" in texts(ax)
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["baseline · 1 kB", "group 2 · 2 kB"]
    assert "photos · photo · resnet18" in texts(ax)
    assert "n = 2 seeds" in texts(ax)
    assert "(s)" in ax.get_xlabel()
    assert "target\n60%" in texts(ax)


def test_runs_without_seconds_are_in_no_figure_of_time(curves: pd.DataFrame) -> None:
    assert with_seconds(curves.assign(timing_excluded_because="storage was not limited")).empty
    (ax,) = draw_accuracy_vs_epoch(curves.assign(timing_excluded_because="storage was not limited")).axes
    assert len(line_ending_with(ax, "group 2")) == 3


def test_one_run_alone_among_means_is_marked(curves: pd.DataFrame) -> None:
    (ax,) = draw_accuracy_vs_epoch(curves[(curves["scan"] != "group_2") | (curves["seed"] == 0)]).axes
    labels = [str(line.get_label()) for line in ax.lines]
    assert "group 2 · 2 kB · n = 1" in labels and "baseline · 1 kB" in labels


def test_a_seed_that_ran_on_two_machines_is_drawn_once_against_epochs(curves: pd.DataFrame) -> None:
    twins = curves.assign(run_id=curves["run_id"] + "-t", timing="1b1b1b1b")
    (ax,) = draw_accuracy_vs_epoch(pd.concat([curves, twins])).axes
    assert "n = 2 seeds" in texts(ax) and len(ax.lines) == 2 + 3
    assert len(draw_time_to_accuracy(pd.concat([curves, twins])).axes) == 2


def test_long_words_are_broken_and_leave_the_panel_its_width(curves: pd.DataFrame) -> None:
    (ax,) = draw_time_to_accuracy(curves.assign(storage="a slow disk, " * 9)).axes
    assert all(len(line) < 70 for line in texts(ax).splitlines())


def test_accuracy_vs_epoch_has_epochs_below(curves: pd.DataFrame) -> None:
    (ax,) = draw_accuracy_vs_epoch(curves).axes
    assert line_ending_with(ax, "group 2")[:, 0].tolist() == [1, 2, 3]


def test_one_panel_per_comparable_group_and_settings_are_told_apart(curves: pd.DataFrame) -> None:
    other_model = curves.assign(model="shufflenet_v2_x1_0")
    other_setting = curves.assign(setting="ffffffff", seed=7)
    axes = draw_time_to_accuracy(pd.concat([curves, other_model, other_setting])).axes
    assert len(axes) == 3
    assert [("setting" in texts(ax)) for ax in axes] == [True, True, False]


def test_a_mean_ends_where_the_shortest_run_ends(curves: pd.DataFrame) -> None:
    level = curves[curves["scan"] == "group_2"]
    cut = level[(level["seed"] == 0) | (level["epoch"] < 3)]
    assert mean_over_seeds(cut, "epoch", "val_score")["epoch"].tolist() == [1, 2]


def test_mssim_vs_scan_draws_means_against_group_and_bytes(quality: pd.DataFrame) -> None:
    against_group, against_bytes = draw_mssim_vs_scan(quality).axes
    means = quality.groupby("group")[["bytes", "ms_ssim"]].mean()
    drawn = np.asarray(against_group.lines[0].get_xydata())
    assert drawn == pytest.approx(np.column_stack([means.index, means["ms_ssim"]]))
    drawn = np.asarray(against_bytes.lines[0].get_xydata())
    assert drawn == pytest.approx(means.to_numpy())
    assert against_bytes.get_xscale() == "log"
    assert against_group.get_ylabel() == "MS-SSIM (whole images)"
    assert "n = 40 images" in texts(against_group)
    assert "bytes" in against_bytes.get_xlabel()


@pytest.mark.parametrize(("low", "high"), BYTES)
@pytest.mark.parametrize("num_panels", [1, 3])
def test_ticks_in_bytes_are_some_and_stand_apart(low: float, high: float, num_panels: int) -> None:
    _, axes = panels(num_panels)
    ax = axes[0]
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    ticks_in_bytes(ax.xaxis, low, high)
    with style():
        assert not overlapping_ticks(ax)
    assert 2 <= len(ax.get_xticks()) <= 7


def test_a_point_is_as_wide_beside_0_whatever_else_is_drawn() -> None:
    widths = []
    for worst, last in ((-1.2, "-1"), (-6, "-5"), (-80, "-100")):
        _, (ax,) = panels(1)
        ax.plot([worst, 0.5], [0, 1], "o", label="points")
        points_axis(ax, "x")
        assert not overlapping_ticks(ax) and not cut_markers(ax)
        shown = [tick.get_text() for tick in ax.get_xticklabels()]
        assert {"-1", "0", "+1"} <= set(shown) and shown[0] == last
        ends = ax.transAxes.inverted().transform(ax.transData.transform([(-1, 0), (0, 0)]))[:, 0]
        widths.append(ends[1] - ends[0])
    assert widths[0] > widths[1] > widths[2] > 0.08


def test_guesses_that_are_near_each_other_have_one_name() -> None:
    near = pd.DataFrame([{"headline": "top1", "majority_share": 0.0373, "num_classes": 196}])
    far = near.assign(majority_share=0.5)
    for rows, wanted in ((near, ["chance 0.51%\nmajority 3.73%"]), (far, ["majority 50%", "chance 0.51%"])):
        _, (ax,) = panels(1)
        upright_chance_lines(ax, rows)
        assert [text.get_text() for text in ax.texts if text.get_text()] == wanted
        assert len(ax.lines) == 2


def test_bytes_per_group_draws_quartiles_and_shares(quality: pd.DataFrame) -> None:
    (ax,) = draw_bytes_per_group(pd.DataFrame(quality)).axes
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2", "5", "10"]
    assert {"6%", "14%", "47%", "100%"} <= set(texts(ax).splitlines())
    box = ax.patches[1].get_path().vertices
    second = quality.loc[quality["group"] == 2, "bytes"]
    assert np.asarray(box)[:, 1].min() == pytest.approx(second.quantile(0.25))
    assert np.asarray(box)[:, 1].max() == pytest.approx(second.quantile(0.75))


def test_training_curve_of_one_run(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    rows = pd.DataFrame(read_rows(make_run(tmp_path, "group_5") / "rows.jsonl"))
    (run,) = read_runs(tmp_path)
    facts = run_frame([run]).iloc[0].to_dict()
    losses, accuracy = draw_training_curve(rows, facts).axes
    assert line_ending_with(losses, "training").tolist() == [[10, 1], [20, 0.5], [30, pytest.approx(1 / 3)]]
    assert line_ending_with(losses, "validation")[:, 1].tolist() == pytest.approx([1.2, 0.6, 0.4])
    assert np.asarray(accuracy.lines[0].get_xydata()).tolist() == [[10, 0.3], [20, 0.6], [30, 0.9]]
    assert "32 validation images" in texts(accuracy)
    _, again = draw_training_curve(pd.DataFrame(run.rows), facts).axes
    assert np.array_equal(again.lines[0].get_xydata(), accuracy.lines[0].get_xydata()), "read or as logged"


def test_a_run_that_has_no_evaluation_yet_can_be_drawn(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    rows = pd.DataFrame(read_rows(make_run(tmp_path, "group_5") / "rows.jsonl")[:1])
    losses, _ = draw_training_curve(rows, run_frame(read_runs(tmp_path)).iloc[0].to_dict()).axes
    assert len(line_ending_with(losses, "training")) == 1


CAPTION = Caption(shows="Quality", of=("photos",), n="n = 40 images", hardware="A CPU", storage=NOT_TIMED)


def test_saved_as_pdf_png_and_the_rows_it_draws(tmp_path: Path, quality: pd.DataFrame) -> None:
    def save(folder: str) -> list[Path]:
        return save_figure(draw_mssim_vs_scan, quality, tmp_path / folder, "mssim", CAPTION)

    files = save("once")
    assert [path.name for path in files] == ["mssim.pdf", "mssim.png", "mssim.csv"]
    assert files[0].read_bytes().startswith(b"%PDF")
    assert files[1].read_bytes().startswith(b"\x89PNG")
    pd.testing.assert_frame_equal(pd.read_csv(files[2], dtype={"id": str}), quality)
    assert [path.read_bytes() for path in save("again")] == [path.read_bytes() for path in files]


def test_a_png_is_small_and_thin_lines_keep_their_colours(tmp_path: Path) -> None:
    colors = [group_color(group) for group in range(1, 11)]
    figure = new_figure(15, 9)
    ax = figure.subplots()
    for at, color in enumerate(colors):
        ax.plot([0, 1], [at, at + 5], color=color, linewidth=3)
    _, path, _ = save_figure(lambda _: figure, pd.DataFrame({"x": [1]}), tmp_path, "lines", CAPTION)
    with Image.open(path) as image:
        assert image.mode == "P" and path.stat().st_size <= MAX_PNG_BYTES
        drawn = np.asarray(image.convert("RGB")).reshape(-1, 3).astype(int)
    assert (drawn[0] == 255).all(), "white stays white"
    for color in colors:
        wanted = 255 * np.array(to_rgb(color))
        assert np.abs(drawn - wanted).max(axis=1).min() <= 16, color


def test_photographs_that_are_too_large_lose_pixels_before_colours(tmp_path: Path) -> None:
    figure = new_figure(9, 9)
    noise = np.random.default_rng(0).integers(0, 256, (900, 900, 3), dtype=np.uint8)
    figure.subplots().imshow(noise)
    _, path, _ = save_figure(lambda _: figure, pd.DataFrame({"x": [1]}), tmp_path, "noise", CAPTION)
    with Image.open(path) as image:
        assert image.width < 0.6 * 9 * 160, "noise cannot be small, so the last size is taken"


def test_lines_beside_a_photograph_keep_their_colours(tmp_path: Path) -> None:
    """Similar colours of thin lines were merged into one, because photographs take most of the palette."""
    figure = new_figure(9, 4)
    photograph, lines = figure.subplots(1, 2)
    photograph.imshow(astronaut())
    for place, (color, _) in enumerate(OTHER_STYLES):
        lines.plot([0, 1], [place, place], color=color)
    _, path, _ = save_figure(lambda _: figure, pd.DataFrame({"x": [1]}), tmp_path, "beside", CAPTION)
    with Image.open(path) as image:
        drawn = np.array([color for _, color in image.convert("RGB").getcolors(1 << 24) or []])
    for color in ["white", *(color for color, _ in OTHER_STYLES)]:
        assert np.abs(drawn - 255 * np.array(to_rgb(color))).max(axis=1).min() <= 16, color


def test_the_users_matplotlib_settings_stay(curves: pd.DataFrame) -> None:
    before = dict(mpl.rcParams)
    draw_time_to_accuracy(curves)
    assert dict(mpl.rcParams) == before


def test_a_level_is_drawn_by_its_numbers_whatever_it_is_called(curves: pd.DataFrame) -> None:
    renamed = curves.assign(scan=curves["scan"].replace({"group_2": "my_favourite_7", "baseline": "whole"}))
    (ax,) = draw_accuracy_vs_epoch(renamed).axes
    colors = {str(line.get_label()).partition(" · ")[0]: line.get_color() for line in ax.lines}
    assert colors["my favourite 7"] == group_color(2) and colors["whole"] == INK
    labels = [label for label in colors if not label.startswith("_")]
    assert labels == ["whole", "my favourite 7"]


def test_a_renamed_preset_is_drawn_at_its_number(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    make_run(tmp_path, "group_5")
    (run,) = read_runs(tmp_path)
    run.config["scan"]["name"] = "quick_look_2"
    (ax,) = draw_accuracy_vs_epoch(eval_curves(run_frame([run]))).axes
    (line,) = [line for line in ax.lines if str(line.get_label()).startswith("group 5")]
    assert (line.get_color(), line.get_marker()) == (group_color(5), group_marker(5))


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (15_400, "15.4 kB"), (107_900, "108 kB"), (2.5e6, "2.5 MB")],
)
def test_bytes_for_people(num_bytes: float, text: str) -> None:
    assert kilobytes(num_bytes) == text


def test_decode_modes_show_means_and_paired_differences() -> None:
    scores = {"libjpeg": {1: 0.80, 2: 0.94}, "unsmoothed": {1: 0.79, 2: 0.94}, "scaled": {1: 0.83, 2: 0.93}}
    crops = pd.DataFrame(
        {"dataset": "imagenet", "id": str(i), "group": group, "decode": mode, "ms_ssim": score - 0.01 * i}
        for mode, by_group in scores.items()
        for group, score in by_group.items()
        for i in range(3)
    )
    means, differences = draw_decode_modes(crops, "MS-SSIM (crops of 64 px)").axes
    assert means.get_ylabel() == "MS-SSIM (crops of 64 px)"
    assert differences.get_ylabel() == "MS-SSIM (crops of 64 px) less libjpeg's"
    drawn = {line.get_label(): line.get_ydata() for line in means.lines}
    assert drawn["scaled"] == pytest.approx([0.82, 0.92])
    assert [text.get_text() for text in differences.get_legend().get_texts()] == ["unsmoothed", "scaled"]
    drawn = {bar.get_label(): bar.lines[0].get_ydata() for bar in differences.containers}
    assert drawn["scaled"] == pytest.approx([0.03, -0.01])


def test_a_table_of_runs_says_the_share_of_bytes_where_a_script_is_not_libjpegs(
    tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    make_run(tmp_path, "group_2")
    (run,) = read_runs(tmp_path)
    assert SHARE not in with_more(run_frame([run]), RUN_COLUMNS)
    assert SHARE not in eval_curves(run_frame([run]))
    scans = [{"components": [0, 1, 2], "Ss": 0, "Se": 63}]
    assert run.manifest.mean_prefix_bytes is not None
    full_bytes = 4 * run.manifest.mean_prefix_bytes * run.rows[-1]["samples_seen"]
    run.config["records"] = {"scans": {"name": "mine", "scans": scans}}
    run.rows[-1]["full_bytes"] = full_bytes
    frame = run_frame([run])
    assert SHARE in with_more(frame, RUN_COLUMNS) and frame[SHARE].tolist() == [0.25]
    assert set(eval_curves(run_frame([run]))[SHARE]) == {0.25}


def test_names_of_lines_that_are_near_each_other_stand_above_and_below(curves: pd.DataFrame) -> None:
    far, near = new_figure(4, 3).subplots(1, 2)
    chance_lines(far, curves.assign(majority_share=0.6, num_classes=8))
    chance_lines(near, curves.assign(majority_share=0.15, num_classes=8))
    assert [text.get_verticalalignment() for text in far.texts] == ["center", "center"]
    assert [text.get_verticalalignment() for text in near.texts] == ["bottom", "top"]


def test_ticks_of_per_cent_are_exact() -> None:
    ax = new_figure(2, 2).subplots()
    percent_axis(ax.yaxis)
    assert [ax.yaxis.get_major_formatter()(share, 0) for share in (0.5, 0.525)] == ["50%", "52.5%"]
