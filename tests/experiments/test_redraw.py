"""`make figures` redraws every committed figure; `rebuild` returns all files that follow from rows."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from experiments import rebuild as redrawing
from experiments.rebuild import RESULTS, rebuild, redraw, with_copy
from experiments.redraw import main
from experiments.results.made_by import hardware_of, made_by
from pcr_exp.analysis.caption import Caption
from pcr_exp.analysis.figure import new_figure, only_figures, save_figure
from pcr_exp.errors import RunError

ENDINGS = ("png", "csv")
"""Files of a committed figure."""


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results whose page makes a committed figure, one that is not committed, and two tables."""

    def page(_: Path, out: Path) -> None:
        caption = Caption(shows="a", of=("b",), n="c", hardware="d", storage="e")
        for name in ("known", "new"):
            save_figure(lambda _: new_figure(2, 2), pd.DataFrame({"x": [1]}), out, name, caption)
        (out / "table.md").write_text("drawn")
        (out / "tables.md").write_text("every case")

    (tmp_path / "made_by.yaml").write_text("a: {pages: {mine: {}}, hardware: A CPU}\na/b: {}\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in (*(f"known.{ending}" for ending in ENDINGS), "table.md", "tables.md"):
        (tmp_path / "a" / name).write_text("committed")
    monkeypatch.setattr(redrawing, "RESULTS", tmp_path)
    monkeypatch.setattr(redrawing, "PAGES", {"mine": page})
    return tmp_path


@pytest.mark.usefixtures("light_figures")
def test_only_what_is_there_is_replaced(results: Path) -> None:
    """A figure that was never committed is not added. Besides figures, only tables.md is replaced."""
    assert list(redraw([results / "a"])) == [results / "a" / "known.png", results / "a" / "tables.md"]
    found = {path.name: path.read_bytes() for path in (results / "a").iterdir() if path.is_file()}
    assert found.keys() == {*(f"known.{ending}" for ending in ENDINGS), "table.md", "tables.md"}
    assert found["known.csv"] == b"x\n1\n" and found["known.png"].startswith(b"\x89PNG")
    assert found["table.md"] == b"committed" and found["tables.md"] == b"every case"
    main([str(results)])
    with pytest.raises(RunError, match=r"elsewhere: wanted a folder of .*made_by\.yaml, or one above"):
        list(redraw([results / "elsewhere"]))


@pytest.mark.usefixtures("light_figures")
def test_a_folder_is_rebuilt_with_or_without_pictures(results: Path) -> None:
    assert set(rebuild(results / "a")) == {"known.csv", "table.md", "tables.md"}
    files = rebuild(results / "a", pictures=True)
    assert set(files) == {"known.csv", "known.png", "table.md", "tables.md"}
    assert (results / "a" / "table.md").read_text() == "committed"


def test_a_page_that_works_in_its_folder_is_given_a_copy(tmp_path: Path) -> None:
    folder, out = tmp_path / "a", tmp_path / "out"
    for place in (folder, out):
        place.mkdir()
    (folder / "rows.csv").write_text("rows")
    (folder / "table.md").write_text("old")
    with_copy(lambda copy: (copy / "table.md").write_text((copy / "rows.csv").read_text()))(folder, out)
    assert {path.name: path.read_text() for path in out.iterdir()} == {"table.md": "rows"}
    assert (folder / "table.md").read_text() == "old"


def test_hardware_is_that_of_the_nearest_folder(results: Path) -> None:
    assert hardware_of(results / "a" / "b") == hardware_of(results / "a") == "A CPU"
    assert hardware_of(results) is None and hardware_of(results.parent) is None


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ("c: {}", r"has no folder c\. Take the entry out"),
        ("a: {page: mine}", r"a has \['page'\]; wanted some of \['hardware', 'pages'\]"),
        ("a: {pages: {yours: {}}}", r"has pages \['yours'\]; wanted some of \['mine'\]"),
        ("a/b: {}", r"a is not in .*made_by\.yaml"),
    ],
)
def test_a_wrong_entry_is_refused(results: Path, entry: str, error: str) -> None:
    (results / "made_by.yaml").write_text(entry)
    made_by.cache_clear()
    with pytest.raises(RunError, match=error):
        rebuild(results / "a")
    made_by.cache_clear()


@pytest.mark.usefixtures("light_figures")
def test_no_other_figure_is_drawn_at_all(tmp_path: Path) -> None:
    """Other figures are skipped, because drawing takes seconds."""
    caption = Caption(shows="a", of=("b",), n="c", hardware="d", storage="e")
    rows = pd.DataFrame({"x": [1]})
    with only_figures({"known"}):
        paths = [*save_figure(lambda _: new_figure(2, 2), rows, tmp_path, "known", caption)]
        assert save_figure(lambda _: new_figure(2, 2), rows, tmp_path, "new", caption) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["known.csv", "known.pdf", "known.png"]
    assert len(paths) == len(save_figure(lambda _: new_figure(2, 2), rows, tmp_path, "new", caption)) == 3


@pytest.mark.usefixtures("light_figures")
def test_a_picture_without_rows_of_its_own_gets_none(results: Path) -> None:
    """Its rows are in another file of the folder."""
    (results / "a" / "known.csv").unlink()
    assert results / "a" / "known.png" in [*redraw([results / "a"])]
    assert not (results / "a" / "known.csv").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("light_figures")
def test_all_committed_figures_are_drawn_from_committed_files() -> None:
    for folder, made in made_by(RESULTS).items():
        drawn = set(rebuild(folder, pictures=True)) if made.pages else set()
        committed = {str(path.relative_to(folder)) for path in folder.glob("*.png")}
        assert committed <= drawn
