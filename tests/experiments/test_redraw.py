"""`make figures`: every committed figure is drawn again, from committed files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from pcr_exp.analysis.core.caption import Caption
from pcr_exp.analysis.core.figure import new_figure, only_figures, save_figure
from pcr_exp.runners import redraw as redrawing
from pcr_exp.runners.redraw import RESULTS, USERS_OWN, Job, jobs, main, redraw
from pcr_exp.runs.packed import RUNS_FILE

COMMITTED = sorted(
    path
    for path in RESULTS.rglob("*.png")
    if path.relative_to(RESULTS).parts[0] not in USERS_OWN and path.with_suffix(".csv").exists()
)


def test_every_folder_with_figures_is_drawn_by_one_job() -> None:
    folders = [job.folder for job in jobs()]
    for png in COMMITTED:
        owners = [folder for folder in folders if png.parent in (folder, folder / "traces")]
        assert owners, f"{png} is drawn by nothing: add its folder to experiments.redraw.jobs"
        assert png.with_suffix(".pdf").exists()


def test_figures_have_the_rows_that_they_draw_beside_them() -> None:
    pictures = [
        path for path in RESULTS.rglob("*.png") if path.relative_to(RESULTS).parts[0] not in USERS_OWN
    ]
    assert sorted(pictures) == COMMITTED and len(COMMITTED) > 60


def test_every_packed_set_has_the_table_that_its_figures_are_drawn_by() -> None:
    """`runs.csv` has the target that was declared."""
    packed = [path.parent for path in RESULTS.rglob(f"runs/{RUNS_FILE}")]
    sets = [runs.parent for runs in packed if runs.relative_to(RESULTS).parts[0] not in USERS_OWN]
    assert len(sets) > 20 and [folder for folder in sets if not (folder / "runs.csv").is_file()] == []


def test_only_what_is_there_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure that was never committed is not added, and no other file is touched."""

    def draw(_: Path, out: Path) -> None:
        for name in ("known", "new"):
            for ending in ("pdf", "png", "csv"):
                (out / f"{name}.{ending}").write_text("drawn")
        (out / "table.md").write_text("drawn")

    for name in ("known.pdf", "known.png", "known.csv", "table.md"):
        (tmp_path / name).write_text("committed")
    assert list(redraw([Job(tmp_path, draw)])) == [tmp_path / "known.png"]
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {
        **{f"known.{ending}": "drawn" for ending in ("pdf", "png", "csv")},
        "table.md": "committed",
    }
    monkeypatch.setattr(redrawing, "jobs", lambda: [Job(tmp_path / "elsewhere", draw)])
    main([str(tmp_path / "here")])  # draws nothing: it would fail, for there is no such folder


@pytest.mark.usefixtures("light_figures")
def test_no_other_figure_is_drawn_at_all(tmp_path: Path) -> None:
    """Drawing takes seconds."""
    caption = Caption(shows="a", of=("b",), n="c", hardware="d", storage="e")
    rows = pd.DataFrame({"x": [1]})
    with only_figures({"known"}):
        paths = [*save_figure(new_figure(2, 2), rows, tmp_path, "known", caption)]
        assert save_figure(new_figure(2, 2), rows, tmp_path, "new", caption) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["known.csv", "known.pdf", "known.png"]
    assert len(paths) == len(save_figure(new_figure(2, 2), rows, tmp_path, "new", caption)) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("light_figures")
def test_all_committed_figures_are_drawn_from_committed_files(tmp_path: Path) -> None:
    drawn = {path.relative_to(tmp_path) for path in redraw(jobs(), into=tmp_path)}
    assert {path.relative_to(RESULTS) for path in COMMITTED} <= drawn
