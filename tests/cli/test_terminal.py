"""Results are plain text in a pipe and rendered on a terminal; the paths of their figures follow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rich.table import Table

from pcr_exp.cli.terminal import print_markdown, print_table, show

Output = pytest.CaptureFixture[str]
PAGE = (
    "# Page\n\n| a | b |\n| --- | ---: |\n| :warning: x | 2 |\n\n![Score over bytes](answers.png)\n\nEnd.\n"
)


def test_a_page_in_a_pipe_is_as_it_was_written_less_its_images(capsys: Output) -> None:
    print_markdown(PAGE)
    assert capsys.readouterr().out == PAGE.replace("![Score over bytes](answers.png)\n\n", "")


def test_a_page_on_a_terminal_has_its_table_and_no_picture(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_markdown(PAGE)
    said = capsys.readouterr().out
    assert ":warning: x" in said and "Score over bytes" not in said and "---" not in said
    assert not any(ord(char) > 0xFFFF for char in said), "no emoji"


def test_a_table_in_a_pipe_is_as_wide_as_its_cells(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    table = Table("name", "path")
    table.add_row("a", "x" * 300)
    print_table(table)
    assert "x" * 300 in capsys.readouterr().out


def test_files_are_not_listed_but_answers_and_figures_are(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "page.md").write_text("An answer.\n")
    files = [tmp_path / name for name in ("page.md", "rows.csv", "curve.png", "curve.pdf")]
    show(files)
    assert capsys.readouterr().out == f"An answer.\nfigure: {tmp_path}/curve.png\n"
    show(files[1:], "| 1 |")
    assert capsys.readouterr().out == f"| 1 |\nfigure: {tmp_path}/curve.png\n"
