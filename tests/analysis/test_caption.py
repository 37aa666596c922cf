"""Every figure states its content, data, n, hardware and storage, and none is written without them."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

import pcr_exp
from experiments.rebuild import RESULTS
from experiments.results.made_by import made_by
from pcr_exp.analysis.accuracy import per_panel
from pcr_exp.analysis.caption import NOT_TIMED, Caption, describe_hardware, describe_task, of_runs
from pcr_exp.analysis.figure import footer, panel_title, panels, put_caption
from pcr_exp.analysis.frame import eval_curves, run_frame
from pcr_exp.analysis.runs import read_runs
from pcr_exp.analysis.style import style
from pcr_exp.analysis.summary import summary_table, to_markdown
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.related_methods import GradientsConfig
from pcr_exp.errors import RunError
from pcr_exp.records.dataset_facts import ImageFile, facts_of

MakeRun = Callable[..., Path]
PACKAGE = Path(pcr_exp.__file__).parent
TASK = describe_task("cars", "make", "resnet18", 128)
FIGURES = sorted(path for folder in made_by(RESULTS) for path in folder.glob("**/*.png"))


def caption(*tasks: str) -> Caption:
    return Caption(shows="Accuracy", of=tasks, n="n = 3 seeds", hardware="A CPU, 2 cores", storage=NOT_TIMED)


def test_the_caption_of_runs_is_what_their_files_say(tmp_path: Path, make_run: MakeRun) -> None:
    for seed in (0, 1):
        make_run(tmp_path, "baseline", seed=seed)
    make_run(tmp_path, "group_2")
    make_run(tmp_path, "group_2", more={"storage": StorageConfig(name="unlimited")})
    found = of_runs(run_frame(read_runs(tmp_path)), "Accuracy")
    assert found.title == "Accuracy\nphotos · photo · resnet18 · 64 px"
    assert found.facts == (
        "n = 1 to 2 seeds each; storage 8 MiB/s / storage without a limit in MiB/s; Test CPU, 2 cores"
    )


@pytest.mark.parametrize(
    ("repeats", "said"),
    [
        ([(0, ""), (1, "")], "n = 2 seeds"),
        ([(0, "0"), (1, "1")], "n = 2 folds"),
        ([(0, "0"), (0, "1")], "n = 2 folds"),
        ([(0, "0"), (1, "0"), (0, "1"), (1, "1")], "n = 4 runs"),
    ],
)
def test_repeats_are_called_what_tells_them_apart(
    tmp_path: Path, make_run: MakeRun, repeats: list[tuple[int, str]], said: str
) -> None:
    make_run(tmp_path, "baseline")
    one = run_frame(read_runs(tmp_path))
    frame = pd.concat([one.assign(seed=seed, fold=fold) for seed, fold in repeats], ignore_index=True)
    assert of_runs(frame, "Accuracy").facts.startswith(f"{said};")
    curves = eval_curves(frame)
    (_, subtitle, _), *_ = per_panel(curves)
    assert f"{said} per scan level" in subtitle


def test_a_run_that_measured_its_images_is_called_by_them(tmp_path: Path, make_run: MakeRun) -> None:
    """Captions, tables and their titles describe the images if they were measured, else name the dataset."""
    folder = make_run(tmp_path, "baseline", more={"storage": StorageConfig(name="unlimited")})
    path = folder / "manifest.json"
    facts = facts_of([ImageFile(224, 224, 75)], num_images=9, num_classes=10)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dataset_facts": asdict(facts)}))
    runs = read_runs(tmp_path)
    name = "photos, ten classes, 224 px, q75"
    assert of_runs(run_frame(runs), "Accuracy").of == (f"{name} · photo · resnet18 · 64 px",)
    frame = run_frame(runs)
    assert list(frame["dataset"]) == list(eval_curves(run_frame(runs))["dataset"].unique()) == [name]
    assert f"{name} · photo · resnet18" in to_markdown(summary_table(frame))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dataset_facts": None}))
    assert list(run_frame(read_runs(tmp_path))["dataset"]) == ["photos"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dataset_facts": {"num_cats": 1}}))
    with pytest.raises(RunError, match=r"not a manifest of this version.*num_cats"):
        read_runs(tmp_path)


def test_a_run_of_the_same_images_is_called_by_what_another_measured(
    tmp_path: Path, make_run: MakeRun
) -> None:
    facts = {"dataset_facts": asdict(facts_of([ImageFile(224, 224, 75)], num_images=9, num_classes=10))}
    for seed, found in enumerate(
        ({"images_key": "a" * 16} | facts, {"images_key": "a" * 16}, {"images_key": "b" * 16})
    ):
        path = make_run(tmp_path, "baseline", seed=seed) / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | found))
    frame = run_frame(read_runs(tmp_path)).set_index("seed")
    measured = "photos, ten classes, 224 px, q75"
    assert frame["dataset"].to_dict() == {0: measured, 1: measured, 2: "photos"}
    assert frame.loc[0, "setting"] == frame.loc[1, "setting"]


def test_only_runs_that_are_drawn_count(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "baseline")
    drawn = make_run(tmp_path, "group_2", more={"storage": StorageConfig(name="unlimited")}).name
    found = of_runs(run_frame(read_runs(tmp_path)), "Accuracy", pd.DataFrame({"run_id": [drawn]}))
    assert found.n == "n = 1 seed" and found.storage == "storage without a limit in MiB/s"


def test_several_processes_name_their_network(tmp_path: Path, make_run: MakeRun) -> None:
    make_run(tmp_path, "group_2", gradients=GradientsConfig(), mbit_per_s=10)
    assert of_runs(run_frame(read_runs(tmp_path)), "Bits").storage == "storage 8 MiB/s; network 10 Mbit/s"


@pytest.mark.parametrize("part", ["shows", "of", "n", "hardware", "storage"])
def test_a_caption_leaves_nothing_out(part: str) -> None:
    whole = {"shows": "A", "of": (TASK,), "n": "n = 1", "hardware": "A CPU", "storage": NOT_TIMED}
    with pytest.raises(ValueError, match=f"the caption of a figure lacks {part}: "):
        Caption(**{**whole, part: () if part == "of" else ""})  # type: ignore[arg-type]


def test_hardware_is_what_a_json_says() -> None:
    assert describe_hardware({"cpu": "A CPU", "num_cores": 2, "gpu": None}) == "A CPU, 2 cores"
    assert describe_hardware({"cpu": "A CPU", "num_cores": 2, "gpu": "A GPU"}) == "A GPU, 2 cores"
    assert describe_hardware({}) == "hardware not recorded"


def test_a_title_is_said_once_and_facts_come_before_how_it_is_drawn() -> None:
    with style():
        figure, (ax, other) = panels(2)
        panel_title(ax, TASK, "10 Mbit/s")
        panel_title(other, "the same, per epoch")
    height_in = figure.get_size_inches()[1]
    footer(figure, "bands: intervals")
    put_caption(figure, caption(TASK))
    assert figure.get_suptitle() == f"Accuracy\n{TASK}"
    assert [each.get_title(loc="left") for each in (ax, other)] == ["", "the same, per epoch"]
    assert figure.get_supxlabel() == f"n = 3 seeds; {NOT_TIMED}; A CPU, 2 cores; bands: intervals"
    assert figure.get_size_inches()[1] > height_in, "panels would be pressed"


def test_of_several_tasks_each_panel_names_its_own() -> None:
    tasks = [describe_task("cars", label, "resnet18", 128) for label in ("make", "model", "year", "door")]
    with style():
        figure, axes = panels(4)
        for ax, task in zip(axes, tasks, strict=True):
            panel_title(ax, f"{task.removesuffix(' · 128 px')}, 10 Mbit/s")
    put_caption(figure, caption(*tasks))
    assert [ax.get_title(loc="left") for ax in axes] == [f"{task}; 10 Mbit/s" for task in tasks]
    assert figure.get_suptitle() == "Accuracy\n4 tasks"


def test_figures_are_written_in_one_place_only() -> None:
    """Only `save_figure`, which requires a caption, may write a figure."""
    writers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "savefig"
    }
    assert writers == {"analysis/figure.py"}


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.relative_to(RESULTS).as_posix())
def test_committed_figures_say_all_of_it(path: Path) -> None:
    """Their metadata contains a title with data, task, model and px, and states n, storage and hardware."""
    with Image.open(path) as image:
        said = dict(image.info)
    again = f"draw it again with `python -m experiments.redraw {path.parent}`"
    assert "Title" in said and "Description" in said, again
    shows, of = said["Title"].split("\n", 1)
    assert shows and any(size in of for size in (" px", "tasks", "whole", "no model", "no crops")), again
    assert said["Description"].startswith("n = "), again
    assert any(word in said["Description"] for word in ("MiB/s", "requests/s", "no storage")), again
    assert any(word in said["Description"] for word in ("core", "hardware", "simulated")), again
    folder = path.parent.parent if path.parent.name == "traces" else path.parent
    if (folder / "runs").exists() and "tasks" not in of and "no model" not in of:
        # Not every set of runs has a summary file; its other tables name the task too.
        keys = ["dataset", "label", "model"]
        tables = (pd.read_csv(file) for file in sorted(folder.glob("*.csv"), reverse=True))
        tasks = next(table[keys] for table in tables if {*keys} <= {*table}).drop_duplicates()
        named = [" · ".join(task) in of for task in tasks.itertuples(index=False)]
        assert any(named), again
