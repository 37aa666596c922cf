"""The study of compressed activations: its measurements are correct, and its figures show them."""

import copy
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.axes import Axes
from torch import nn

from experiments.comet.page import (
    draw_activation_memory,
    draw_codec_errors,
    draw_gradient_errors,
    draw_gradient_sigma,
    draw_layer_bounds,
    draw_run_layers,
    memory_markdown,
    write_study,
)
from experiments.comet.study import (
    CODEC_COLUMNS,
    MEMORY_COLUMNS,
    NORMAL_COLUMNS,
    SIGMA_COLUMNS,
    Batch,
    codec_errors,
    gradient_errors,
    memory_table,
)
from pcr_exp.activations.quantise import QuantiseCodec, QuantiseConfig
from pcr_exp.config.related_methods import ActivationsConfig
from pcr_exp.errors import RunError

pytestmark = pytest.mark.usefixtures("light_figures")

MODES = {
    "none": ActivationsConfig(),
    "lossless": ActivationsConfig(name="lossless"),
    "recompute": ActivationsConfig(name="recompute"),
    "quantise 0.01": QuantiseConfig(bounds="fixed", initial_bound=0.01),
}


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for given in (3, 40, 40):
        layers += [nn.Conv2d(given, 40, 3, padding=1), nn.BatchNorm2d(40), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(160, 5))


@pytest.fixture(scope="module")
def batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    return Batch(
        torch.randn(16, 3, 20, 20, generator=generator), torch.randint(5, (16,), generator=generator)
    )


@pytest.fixture(scope="module")
def codec(model: nn.Module, batch: Batch) -> pd.DataFrame:
    return codec_errors(model, batch, {"quantise": QuantiseCodec()}, 0.01)


@pytest.fixture(scope="module")
def tables(model: nn.Module, batch: Batch) -> tuple[pd.DataFrame, pd.DataFrame]:
    return gradient_errors(model, batch, "quantise", QuantiseCodec(), [0.05, 0.01], [4, 16])


@pytest.fixture(scope="module")
def memory(model: nn.Module, batch: Batch) -> pd.DataFrame:
    return memory_table(model, batch, MODES, 0.9)


def texts(ax: Axes) -> str:
    return "\n".join([ax.get_title(loc="left"), *(text.get_text() for text in ax.texts)])


def test_codec_errors_are_shares_of_all_values_and_uniform(codec: pd.DataFrame) -> None:
    assert list(codec.columns) == CODEC_COLUMNS
    assert codec["share"].sum() == pytest.approx(1)
    assert codec["std"].iloc[0] == pytest.approx(1 / math.sqrt(3), rel=0.03)
    assert codec["low"].iloc[0] == -1 and codec["high"].iloc[-1] == pytest.approx(1)


def test_the_exact_model_predicts_what_gradients_do(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    sigmas, _ = tables
    assert list(sigmas.columns) == SIGMA_COLUMNS
    assert len(sigmas) == 3 * 2 * 2
    assert (sigmas["exact_sigma"] / sigmas["measured_sigma"]).between(0.85, 1.25).all()
    assert not (sigmas["paper_sigma"] / sigmas["measured_sigma"]).between(0.85, 1.25).any()
    assert (sigmas["ratio"] > 1).all()


def test_gradient_errors_are_normal(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    _, normal = tables
    assert list(normal.columns) == NORMAL_COLUMNS
    assert normal.groupby(["bound", "batch_size"])["share"].sum().tolist() == pytest.approx([1] * 4, abs=0.01)
    assert normal["kurtosis"].between(2.6, 3.4).all()
    assert normal["within_one"].between(0.64, 0.72).all()
    assert set(normal["num_weights"]) == {2 * 40 * 40 * 9}  # the first layer's channels have 27 weights each


def test_channels_without_errors_hide_no_others(model: nn.Module, batch: Batch) -> None:
    dead = copy.deepcopy(model)
    with torch.no_grad():
        for norm in (dead[4], dead[7]):
            norm.weight[:4], norm.bias[:4] = 0.0, -1.0  # outputs never exceed zero, so no gradient
    _, normal = gradient_errors(dead, batch, "quantise", QuantiseCodec(), [0.01], [16])
    # Four outputs and four inputs of the last convolution are dead, and four outputs of the one before.
    assert set(normal["num_weights"]) == {36 * 36 * 9 + 36 * 40 * 9}
    _, none = gradient_errors(model, batch, "quantise", QuantiseCodec(), [1e-12], [16])
    assert none.empty  # every input is saved exactly


def test_layers_of_few_weights_say_nothing_about_normality() -> None:
    tiny = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    batch = Batch(torch.randn(2, 3, 8, 8), torch.tensor([0, 1]))
    sigmas, normal = gradient_errors(tiny, batch, "quantise", QuantiseCodec(), [0.01], [2])
    assert len(sigmas) == 1 and normal.empty


def test_the_memory_table_counts_every_mode(memory: pd.DataFrame) -> None:
    assert list(memory.columns) == MEMORY_COLUMNS
    rows = memory.set_index("mode")
    assert rows.loc["lossless", "kept_bytes"] < rows.loc["none", "kept_bytes"]
    saved = rows["conv_bytes"] - rows["packed_bytes"]
    kept = rows.loc["none", "kept_bytes"] - rows["kept_bytes"]
    assert kept["quantise 0.01"] == saved["quantise 0.01"] > 0
    assert rows.loc["quantise 0.01", "held_bytes"] == 0
    assert rows.loc["recompute", "reason"].startswith("activations=recompute: Sequential is a plain chain")
    assert math.isnan(rows.loc["recompute", "kept_bytes"])
    assert (rows["peak_bytes"].dropna() >= rows["kept_bytes"].dropna()).all()


def test_measuring_leaves_the_model_as_it_was(model: nn.Module, batch: Batch, memory: pd.DataFrame) -> None:
    again = memory_table(model, batch, MODES, 0.9)
    pd.testing.assert_frame_equal(again, memory)


@pytest.mark.gpu
def test_on_a_gpu_the_allocator_agrees(model: nn.Module, batch: Batch) -> None:
    on_gpu = Batch(batch.inputs.cuda(), batch.labels.cuda())
    rows = memory_table(model.cuda(), on_gpu, MODES, 0.9).set_index("mode")
    saved = rows.loc["quantise 0.01", "conv_bytes"] - rows.loc["quantise 0.01", "packed_bytes"]
    kept = rows.loc["none", "kept_bytes"] - rows.loc["quantise 0.01", "kept_bytes"]
    assert kept == pytest.approx(saved, rel=0.05)
    model.cpu()


def test_the_markdown_has_a_line_for_every_mode(memory: pd.DataFrame) -> None:
    lines = memory_markdown(memory).splitlines()
    assert len(lines) == 2 + len(MODES)
    assert "| 1.00 |" in lines[2]
    assert "plain chain of layers" in lines[4]
    assert {line.count("|") for line in lines} == {10}


def test_figures_draw_the_tables(
    codec: pd.DataFrame, tables: tuple[pd.DataFrame, pd.DataFrame], memory: pd.DataFrame
) -> None:
    sigmas, normal = tables
    (ax,) = draw_codec_errors(codec).axes
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(codec["share"])  # type: ignore[attr-defined]
    small, large = draw_gradient_errors(normal, 0.01).axes
    assert "N = 4" in texts(small) and "N = 16" in texts(large) and "kurtosis" in texts(large)
    exact, paper = draw_gradient_sigma(sigmas).axes
    drawn = np.concatenate([np.asarray(line.get_xydata()) for line in exact.lines[:2]])
    assert sorted(drawn[:, 1]) == pytest.approx(sorted(sigmas["exact_sigma"]))
    assert "0.32" in texts(paper)
    kept, _ = draw_activation_memory(memory).axes
    assert [bar.get_width() for bar in kept.patches] == pytest.approx(memory["kept_bytes"].fillna(0))  # type: ignore[attr-defined]
    assert "not for this model" in texts(kept)


def test_every_bound_has_its_own_colour(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    sigmas = pd.concat([tables[0].assign(bound=bound) for bound in (0.01, 0.02, 0.03, 0.04, 0.05)])
    for ax in draw_gradient_sigma(sigmas).axes:
        *of_bounds, equality = ax.lines
        assert [line.get_label() for line in of_bounds] == [f"bound 0.0{i}" for i in range(1, 6)]
        assert len({str(line.get_color()) for line in of_bounds}) == 5 and equality.get_linestyle() == "-"


def layers() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "step": step,
            "layer": layer,
            "bound": 1e-4 * (step + 1),
            "nonzero_share": 0.5,
            "predicted_sigma": 1.0,
            "acceptable_sigma": 1.0,
            "raw_bytes": 1000,
            "packed_bytes": 100 * (step + 1),
            "held_bytes": 1000 if layer == "b" else 0,
        }
        for step in (0, 1)
        for layer in ("a", "b")
    )


def test_what_is_kept_elsewhere_counts_as_not_compressed() -> None:
    bounds, ratios = draw_layer_bounds(layers()).axes
    assert np.asarray(bounds.lines[0].get_xydata())[:, 1].tolist() == pytest.approx([1e-4, 2e-4])
    together = np.asarray(ratios.lines[-1].get_xydata())[:, 1]
    assert together.tolist() == pytest.approx([2000 / 1200, 2000 / 1400])
    assert "50.0% of the bytes kept elsewhere" in " ".join(texts(ratios).split())


def test_a_study_is_written_with_its_command(
    tmp_path: Path,
    codec: pd.DataFrame,
    tables: tuple[pd.DataFrame, pd.DataFrame],
    memory: pd.DataFrame,
) -> None:
    files = write_study(tmp_path, codec, *tables, memory, title="a model, 64 px", bound=0.01, dataset="cars")
    assert all(path.is_file() for path in files)
    assert {path.stem for path in files} == {
        *("activations", "activation_memory", "codec_errors", "gradient_errors", "gradient_sigma")
    }
    sigmas, normal = tables
    given = {"title": "narrow layers", "bound": 0.01, "dataset": "cars"}
    fewer = write_study(tmp_path / "narrow", codec, sigmas, normal.head(0), memory, **given)
    assert {path.stem for path in fewer} == {path.stem for path in files} - {"gradient_errors"}
    (tmp_path / "run").mkdir()
    layers().to_csv(tmp_path / "run" / "activations.csv", index=False)
    config = "dataset: {name: cars, label: make}\nmodel: {name: vgg11}\n"
    (tmp_path / "run" / "config.yaml").write_text(config)
    drawn = draw_run_layers(tmp_path / "run", tmp_path)
    assert [path.name for path in drawn] == ["layer_bounds.pdf", "layer_bounds.png", "layer_bounds.csv"]


def test_a_run_that_compressed_nothing_has_no_layers_to_draw(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"activations.csv is not there: wanted a run with activations="):
        draw_run_layers(tmp_path, tmp_path)
