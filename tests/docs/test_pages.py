"""Code on every page of the documentation runs, or its commands are valid; links have a target."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from code_blocks import REPO, blocks_of, require_command, run_block

PAGES = sorted(path for path in (REPO / "docs").rglob("*.md") if not {"generated", "_build"} & {*path.parts})
RUN = {page: [block for block in blocks_of(page) if block.mark == "run"] for page in PAGES}
PROGRAMS = [page for page, blocks in RUN.items() if any(block.language == "bash" for block in blocks)]
PYTHON_ALONE = [page for page, blocks in RUN.items() if blocks and page not in PROGRAMS]
COMPOSED = sorted(
    {line for page in PAGES for b in blocks_of(page) if b.mark == "composed" for line in b.commands}
)


def name_of(page: Path) -> str:
    return str(page.relative_to(REPO / "docs").with_suffix(""))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_run_or_composed(page: Path) -> None:
    assert [block.code for block in blocks_of(page) if not block.mark] == [], "say <!-- run --> or why not"
    assert [b.code for b in blocks_of(page) if b.language == "python" and b.mark != "run"] == []


@pytest.mark.parametrize("command", COMPOSED)
def test_commands_that_are_not_run_are_understood(command: str) -> None:
    require_command(command)


def test_a_command_that_is_not_there_would_be_noticed() -> None:
    for command in ("make tea", "pcr-exp trian", "rm -rf x"):
        with pytest.raises((AssertionError, SystemExit)):
            require_command(command)
    with pytest.raises(Exception, match="bandwith"):
        require_command("pcr-exp train storage.bandwith_mib_per_s=5")


@pytest.mark.parametrize("page", PYTHON_ALONE, ids=name_of)
def test_python_runs_as_it_stands(page: Path, reader: Path) -> None:  # noqa: ARG001
    if "hf://" in page.read_text():
        pytest.importorskip("huggingface_hub", reason="pip install 'pcr-exp[hub]'")
    seen: dict[str, Any] = {}
    for block in RUN[page]:
        exec(compile(block.code, str(page), "exec"), seen)


@pytest.mark.program
@pytest.mark.parametrize("page", PROGRAMS, ids=name_of)
def test_programs_run_as_they_stand_one_after_the_other(page: Path, reader: Path) -> None:
    for block in RUN[page]:
        run_block(block, reader)


def test_every_extra_is_on_the_page_that_installs() -> None:
    extras = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (REPO / "docs" / "start" / "install.md").read_text()
    assert [extra for extra in extras if f"`{extra}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Links within the repository have a target; Sphinx checks those of the site."""
    for address in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in address:
            assert (page.parent / address).exists(), f"{name_of(page)} links to {address}"
