"""Runs of several processes compared: what codecs sent, how fast training was, and the figures."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawn import overlapping_ticks
from made_runs import written
from omegaconf import OmegaConf

from experiments.threelc.figures import (
    draw_accuracy_against_time,
    draw_bits_over_training,
    draw_speedups,
    draw_traffic_by_sparsity,
    few_codecs,
    gradient_links,
    in_order,
    network_name,
    style_of,
    traffic_by_sparsity,
)
from experiments.threelc.frame import (
    PUBLISHED,
    WITHOUT_ZERO_RUNS,
    accuracy_curves,
    bits_curves,
    codec_columns,
    coded_bits,
    gradient_frame,
    gradient_table,
    published,
)
from experiments.threelc.page import gradients_to_markdown, write_gradient_report
from pcr_exp.analysis.figure import MAX_CURVES
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.runs import read_runs
from pcr_exp.config.components import schemas
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.related_methods import GradientsConfig
from pcr_exp.gradients.threelc import ThreeLCConfig

pytestmark = pytest.mark.usefixtures("light_figures")
MakeRun = Callable[..., Path]
NONE = GradientsConfig()


def threelc(sparsity: float, **settings: Any) -> GradientsConfig:
    return ThreeLCConfig(sparsity=sparsity, **settings)


@pytest.fixture(scope="module")
def two_links(tmp_path_factory: pytest.TempPathFactory, make_run: MakeRun) -> Path:
    """At 10 Mbit/s, 3LC is 5 and 3.3 times as fast as floats, by seed; at 100 Mbit/s there are no floats."""
    root = tmp_path_factory.mktemp("links")
    for seed in (0, 1):
        make_run(root, "group_5", seed=seed, gradients=NONE, mbit_per_s=10, epoch_s=20)
        fast = {"gradients": threelc(1.75), "epoch_s": 4 + 2 * seed, "coded_bits": 0.5}
        make_run(root, "group_5", seed=seed, mbit_per_s=10, top1=(0.2, 0.5, 0.6 - seed / 5), **fast)
        make_run(root, "group_5", seed=seed, mbit_per_s=100, **fast)
    make_run(root, "group_5")  # one process
    return root


def test_bits_are_of_all_values_and_of_those_that_went_through_the_codec(
    tmp_path: Path, make_run: MakeRun
) -> None:
    settings = {"mbit_per_s": 10, "epoch_s": 8, "coded_bits": 0.5}
    make_run(tmp_path, "group_5", gradients=threelc(1.5, mode="server"), **settings)
    (row,) = gradient_frame(run_frame(read_runs(tmp_path))).to_dict("records")
    assert (row["mode"], row["codec"], row["bandwidth_mbit_per_s"]) == ("server", "threelc s=1.50", 10)
    assert (row["coded_bits"], row["push_coded_bits"], row["pull_coded_bits"]) == (0.75, 0.5, 1.0)
    # 200 of 1,000 values are small, and take 32 bits each.
    assert row["bits_per_value"] == pytest.approx((0.2 * 32 + 0.8 * 0.5 + 0.2 * 32 + 0.8 * 1.0) / 2)
    assert row["updates"] == 12
    # After the first row, two epochs of 64 images take 8 s each.
    assert row["images_per_s"] == pytest.approx(8) and row["network_share"] == pytest.approx(0.5)


def test_what_no_codec_touched_has_no_bits_of_a_codec() -> None:
    nothing = {"pushed_values": 10, "pushed_plain_values": 10, "pushed_bytes": 40}
    assert math.isnan(coded_bits(nothing, None, ["pushed"]))
    later = {"pushed_values": 30, "pushed_plain_values": 20, "pushed_bytes": 90}
    assert coded_bits(later, nothing, ["pushed"]) == 8


def test_the_speed_up_is_over_floats_on_the_same_link(two_links: Path) -> None:
    frame = gradient_frame(run_frame(read_runs(two_links)))
    assert frame["setting"].nunique() == 1 and len(frame) == 6
    table = gradient_table(frame).set_index(["bandwidth_mbit_per_s", "codec"])
    # Mean rate of 64 images in 4 s and 64 in 6 s, over 64 in 20 s.
    assert table.loc[(10, "threelc s=1.75"), "speedup"] == pytest.approx((64 / 4 + 64 / 6) / 2 / (64 / 20))
    assert table.loc[(10, "none"), "speedup"] == 1
    assert np.isnan(table.loc[(100, "threelc s=1.75"), "speedup"])
    assert table.loc[(10, "threelc s=1.75"), "ratio"] == pytest.approx(64)
    assert (table.loc[(10, "threelc s=1.75"), "n"], table.loc[(10, "threelc s=1.75"), "num_reached"]) == (
        2,
        1,
    )
    assert np.isnan(table.loc[(10, "threelc s=1.75"), "time_to_target_s_mean"])


def test_a_link_names_the_epochs_of_trainings_of_several_lengths(two_links: Path) -> None:
    table = gradient_table(gradient_frame(run_frame(read_runs(two_links))))
    longer = table[table["bandwidth_mbit_per_s"] == 10].assign(epochs=lambda rows: 2 * rows["epochs"])
    (epochs,) = table["epochs"].unique()
    links = [link for _, _, link, _ in gradient_links(pd.concat([table, longer]))]
    of_10 = [f"10 Mbit/s, ddp, {number} epochs" for number in (epochs, 2 * epochs)]
    assert links == [*of_10, "100 Mbit/s, ddp"]


def test_equal_runs_are_no_further_seeds(tmp_path: Path, make_run: MakeRun) -> None:
    for sparsity in (1.0, 1.5):  # formerly a setting of every codec; floats ignore it
        file = make_run(tmp_path, "group_5", gradients=NONE, mbit_per_s=10) / "config.yaml"
        config = OmegaConf.load(file)
        config.gradients.sparsity = sparsity
        OmegaConf.save(config, file)
    (row,) = gradient_table(gradient_frame(run_frame(read_runs(tmp_path)))).to_dict("records")
    assert (row["n"], row["num_reached"]) == (1, 1)


def test_floats_of_several_batches_are_compared_with_floats_of_each(
    tmp_path: Path, make_run: MakeRun
) -> None:
    make_run(tmp_path / "each", "group_5", gradients=NONE, mbit_per_s=10, epoch_s=20)
    file = make_run(tmp_path / "two", "group_5", gradients=NONE, mbit_per_s=10, epoch_s=10) / "config.yaml"
    config = OmegaConf.load(file)
    config.training.global_batch_size = 64  # batches of 16 in two processes
    OmegaConf.save(config, file)
    runs = [*read_runs(tmp_path / "each"), *read_runs(tmp_path / "two")]
    rows = gradient_table(gradient_frame(run_frame(runs))).set_index("codec")
    assert list(rows.index) == ["none", "none, 2 local steps"] and rows["setting"].nunique() == 1
    assert rows.loc["none, 2 local steps", "speedup"] == 2
    assert published(rows.loc["none, 2 local steps"].to_dict()).speedup_at_10_mbit == 1.92


def codec(name: str, **settings: Any) -> dict[str, Any]:
    """Return the columns of `gradient_frame` that describe a codec."""
    gradients = asdict(schemas("gradients")[name](name=name, **settings))
    return codec_columns(gradients)


def test_codecs_are_named_with_what_tells_them_apart() -> None:
    codecs = [codec(name) for name in schemas("gradients")]
    assert {each["codec"] for each in codecs} == {
        *("none", "fp16", "bf16", "int8", "onebit", "ternary_stochastic"),
        *("topk 25%", "powersgd rank 2", "threelc s=1.00"),
    }
    assert codec("topk", fraction=0.05)["codec"] == "topk 5%"
    assert codec("threelc", sparsity=1.9, zero_run=False)["codec"] == "threelc s=1.90, no ZRE"
    assert len({style_of(each)["marker"] for each in codecs}) == len(schemas("gradients"))


def test_a_codec_that_no_table_knows_has_a_name_a_look_and_a_place() -> None:
    gradients = {**asdict(GradientsConfig()), "name": "sketch", "num_rows": 5}
    own = codec_columns(gradients)
    assert own["codec"] == "sketch num_rows=5" and not own["zero_run"]
    assert style_of(own) == style_of(own) != style_of(codec("none"))
    assert in_order(pd.DataFrame([own, codec("none")]))["codec"].tolist() == ["none", "sketch num_rows=5"]
    assert published(own).certainty == "-"


def test_codecs_have_an_order() -> None:
    codecs = [
        *(codec("threelc", sparsity=1.9), codec("threelc"), codec("threelc", zero_run=False)),
        *(codec("topk"), codec("topk", fraction=0.05), codec("none")),
    ]
    assert in_order(pd.DataFrame(codecs))["codec"].tolist() == [
        *("none", "topk 5%", "topk 25%"),
        *("threelc s=1.00, no ZRE", "threelc s=1.00", "threelc s=1.90"),
    ]
    assert style_of(codecs[0])["color"] != style_of(codecs[1])["color"]
    assert style_of(codecs[3])["color"] != style_of(codecs[4])["color"]
    assert network_name(math.inf) == "loopback" and network_name(1000, 2) == "1,000 Mbit/s, 2 ms"


def test_a_look_is_of_the_codecs_numbers_and_not_of_its_label() -> None:
    renamed = codec("threelc", sparsity=1.75) | {"codec": "anything 9"}
    assert style_of(renamed) == style_of(codec("threelc", sparsity=1.75))
    assert published(renamed).ratio == 107


def test_published_numbers_of_two_local_steps_are_those_of_no_other_number() -> None:
    two, four = (codec_columns(asdict(NONE), num_batches) for num_batches in (2, 4))
    assert published(two).speedup_at_10_mbit == 1.92
    assert four["codec"] == "none, 4 local steps"
    assert math.isnan(published(four).speedup_at_10_mbit) and published(four).certainty == "-"


def test_published_numbers_agree_with_each_other() -> None:
    for numbers in (*PUBLISHED.values(), WITHOUT_ZERO_RUNS):
        if not math.isnan(numbers.ratio):
            assert numbers.ratio == pytest.approx(32 / numbers.bits_per_value, rel=0.005)
        assert numbers.certainty.startswith("recalled, medium")
    assert published(codec("threelc", sparsity=1.5, zero_run=False)).ratio == 20
    powersgd = published(codec("powersgd"))
    assert math.isnan(powersgd.top1) and powersgd.certainty == "-"


def test_the_table_has_the_published_numbers_beside_ours(two_links: Path) -> None:
    runs = [
        replace(run, manifest=replace(run.manifest, majority_share=0.125)) for run in read_runs(two_links)
    ]
    text = gradients_to_markdown(gradient_table(gradient_frame(run_frame(runs))))
    assert "**photos · photo · resnet18, 10 Mbit/s, ddp**, target 60%, majority class 12.5%" in text
    (ours,) = [line for line in text.splitlines() if "threelc" in line and "reached by 1 of 2" in line]
    # Seeds end at 60 and 40 %, floats at 90 %: -40 ± 12.706 x 10.
    assert ours.split(" | ")[1:] == [
        *("12", "2", "6.8", "0.5", "64", "1.7", "13.3 (10.7 to 16)"),
        *("50.0% (40.0% to 60.0%)", "55.0% (50.0% to 60.0%)", "12.5%", "-40.0 ± 127"),
        *("reached by 1 of 2", "4.17 (3.33 to 5)"),
        *("0.298", "107", "22.8", "93.5%", "recalled, medium; 39-107 x and 16-23 x are the abstract's |"),
    ]


def test_without_a_limit_there_are_no_seconds_and_no_speed_up(tmp_path: Path, make_run: MakeRun) -> None:
    unlimited = {"storage": StorageConfig(name="unlimited")}
    for codec in (NONE, threelc(1.75)):
        make_run(tmp_path / "both", "group_5", gradients=codec, more=unlimited)
    table = gradient_table(gradient_frame(run_frame(read_runs(tmp_path / "both"))))
    assert table[["images_per_s_mean", "time_to_target_s_mean", "speedup"]].isna().all(axis=None)
    text = gradients_to_markdown(table)
    assert "| - ¹ |" in text and "¹ Storage was not limited" in text and "| 1 † |" in text
    assert accuracy_curves(gradient_frame(run_frame(read_runs(tmp_path / "both")))).empty
    for codec in (NONE, threelc(1.75)):
        make_run(tmp_path / "link", "group_5", gradients=codec, mbit_per_s=10, more=unlimited)
    table = gradient_table(gradient_frame(run_frame(read_runs(tmp_path / "link"))))
    assert table["speedup"].notna().all(), "the link is what limits them"


def test_one_run_alone_among_means_is_marked(two_links: Path, tmp_path: Path, make_run: MakeRun) -> None:
    runs = shutil.copytree(two_links, tmp_path / "runs")
    make_run(runs, "group_5", gradients=threelc(1.0), mbit_per_s=10, top1=(0.2, 0.5, 0.6))
    left, _ = draw_speedups(gradient_table(gradient_frame(run_frame(read_runs(runs))))).axes
    assert "threelc s=1.00 (n = 1)" in [label.get_text() for label in left.get_yticklabels()]
    first, _ = draw_accuracy_against_time(accuracy_curves(gradient_frame(run_frame(read_runs(runs))))).axes
    assert "threelc s=1.00 (n = 1)" in [str(line.get_label()) for line in first.lines]


def test_speed_ups_are_bars_and_recalled_numbers_are_not_drawn(two_links: Path) -> None:
    left, right = draw_speedups(gradient_table(gradient_frame(run_frame(read_runs(two_links))))).axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["none", "threelc s=1.75"]
    # Mean of the seeds' speed-ups, 20 s / 4 s and 20 s / 6 s.
    assert [bar.get_width() for bar in left.patches] == pytest.approx([1, 25 / 6])  # type: ignore[attr-defined]
    assert not [line for line in left.lines if line.get_marker() == "D"]
    (point,) = [line for line in right.lines if line.get_marker() == "o"]
    assert np.asarray(point.get_xdata()) == pytest.approx([100 * (0.5 - 0.9)]), "against floats, by seed"
    assert "points of top-1" in right.get_xlabel()
    assert "12 updates, 2 processes, n = 2" in "\n".join(text.get_text() for text in left.texts)


def test_accuracy_against_time_is_a_mean_over_seeds(two_links: Path) -> None:
    first, second = draw_accuracy_against_time(
        accuracy_curves(gradient_frame(run_frame(read_runs(two_links))))
    ).axes
    lines = {str(line.get_label()): np.asarray(line.get_xydata()) for line in first.lines}
    assert lines["threelc s=1.75"].tolist() == pytest.approx(np.array([[5, 0.2], [10, 0.5], [15, 0.5]]))
    assert "100 Mbit/s" in second.get_title(loc="left")


def test_many_codecs_are_small_multiples_beside_none() -> None:
    threelc = [f"threelc s={sparsity}" for sparsity in (1, 1.5, 1.75, 1.9)]
    others = ["fp16", "int8", "topk 5%", "topk 25%", "powersgd rank 2", "onebit"]
    names = ["none", *others, *threelc]
    rows = pd.DataFrame({"codec": names, "codec_name": [name.split()[0] for name in names]})
    assert [part["codec"].tolist() for part in few_codecs(rows)] == [
        *(["none", *others[:5]], ["none", others[5]], ["none", *threelc])
    ]
    assert len(few_codecs(rows[:MAX_CURVES])) == 1


def test_runs_with_one_evaluation_are_no_curves(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_5", gradients=NONE, top1=(0.5,))
    assert accuracy_curves(gradient_frame(run_frame(read_runs(tmp_path)))).empty


@pytest.fixture
def sparsities(tmp_path: Path, make_run: MakeRun) -> Path:
    for sparsity, bits in ((1.0, 0.9), (1.75, 0.3)):
        for zero_run in (True, False):
            settings = {
                "gradients": threelc(sparsity, zero_run=zero_run),
                "coded_bits": bits if zero_run else 1.6,
            }
            make_run(tmp_path, "group_5", mbit_per_s=10, **settings)
        server = threelc(sparsity, mode="server")
        make_run(tmp_path, "group_5", mbit_per_s=100, gradients=server, coded_bits=bits / 2)
    return tmp_path


def test_traffic_against_s_with_and_without_zero_runs(sparsities: Path) -> None:
    traffic = traffic_by_sparsity(gradient_table(gradient_frame(run_frame(read_runs(sparsities)))))
    ddp, server = draw_traffic_by_sparsity(traffic).axes
    lines = {str(line.get_label()): np.asarray(line.get_xydata()) for line in ddp.lines}
    assert lines["with zero-run encoding"].tolist() == pytest.approx(np.array([[1, 0.9], [1.75, 0.3]]))
    assert lines["without zero-run encoding"].tolist() == pytest.approx(np.array([[1, 1.6], [1.75, 1.6]]))
    assert not overlapping_ticks(ddp)
    assert [str(line.get_label()) for line in server.lines] == [
        *("with zero-run encoding", "small tensors and framing, too")
    ]
    # Pulls take twice the bits of pushes (`coded_bits` above), so their common mean is 1.5 times that.
    assert np.asarray(server.lines[0].get_ydata()) == pytest.approx([0.45 * 1.5, 0.15 * 1.5])


def test_bits_over_training_pushes_and_pulls_apart(sparsities: Path) -> None:
    curves = bits_curves(gradient_frame(run_frame(read_runs(sparsities))))
    assert curves["zero_run"].all()
    axes = draw_bits_over_training(curves).axes
    ways = [ax.get_title(loc="left").partition(", ")[2] for ax in axes]
    assert ways == ["push, server", "pull, server", "push, ddp"]
    push, pull, _ = (
        {str(line.get_label()): np.asarray(line.get_xydata()) for line in ax.lines} for ax in axes
    )
    assert push["threelc s=1.75"].tolist() == pytest.approx(np.array([[4, 0.15], [8, 0.15], [12, 0.15]]))
    assert pull["threelc s=1.00"][:, 1] == pytest.approx(np.full(3, 0.9))


def test_bits_are_drawn_of_the_longest_runs(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_5", gradients=threelc(1.5), mbit_per_s=10, top1=(0.1,), coded_bits=0.7)
    for mbit_per_s in (10, 100):
        make_run(tmp_path, "group_5", gradients=threelc(1.5), mbit_per_s=mbit_per_s, coded_bits=0.6)
    curves = bits_curves(gradient_frame(run_frame(read_runs(tmp_path))))
    assert curves["coded_bits"].tolist() == pytest.approx([0.6] * 3)
    assert set(curves["bandwidth_mbit_per_s"]) == {100}


def test_every_figure_that_runs_allow(two_links: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("figures")
    tables, figures = written(write_gradient_report, run_frame(read_runs(two_links)), out)
    assert {path.name for path in tables} == {"gradients.csv", "gradients.md"}
    names = ("gradient_speedup", "gradient_time", "gradient_traffic", "gradient_bits")
    assert {path.name for path in figures} == {
        f"{name}.{ending}" for name in names for ending in ("pdf", "png", "csv")
    }
    assert {path.name for path in out.iterdir()} == {path.name for path in [*tables, *figures]}
    assert len(pd.read_csv(out / "gradient_speedup.csv")) == 3


@pytest.mark.parametrize("settings", [{}, {"gradients": NONE}])
def test_nothing_is_written_where_nothing_was_compressed(
    tmp_path: Path, make_run: MakeRun, settings: dict[str, Any]
) -> None:
    make_run(tmp_path / "runs", "group_5", **settings)
    assert written(write_gradient_report, run_frame(read_runs(tmp_path / "runs")), tmp_path) == ([], [])
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
