"""The README's commands, tables and links are those of the program and of the committed results."""

import re
import shlex
from pathlib import Path

import pytest
from composing import compose

REPO = Path(__file__).parents[1]
README = (REPO / "README.md").read_text()
ARCHIVE = REPO / "results" / "archive"
PAGES = [
    REPO / "README.md",
    *sorted((REPO / "results").glob("*/README.md")),
    *sorted(ARCHIVE.glob("*/README.md")),
]


def commands(page: Path) -> list[str]:
    """Every `python -m experiments...` line in the code blocks of a page, without comments."""
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(), flags=re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.partition("  #")[0].strip() for line in lines if line.startswith("python -m experiments.")]


@pytest.mark.parametrize("command", sorted({command for page in PAGES for command in commands(page)}))
def test_every_command_composes(command: str) -> None:
    _, _, module, *arguments = shlex.split(command)
    runner = module.removeprefix("experiments.")
    # A sweep composes each value in turn; its first will do.
    overrides = [re.sub(r"^([^=]+=[^,\[]*),.*$", r"\1", word) for word in arguments if word != "-m"]
    assert compose(runner, *overrides) is not None


def test_the_two_make_targets_are_there() -> None:
    makefile = (REPO / "Makefile").read_text()
    assert re.search(r"^demo:", makefile, flags=re.MULTILINE)
    assert re.search(r"^test:", makefile, flags=re.MULTILINE)
    assert README.index("make demo") < README.index("make test") < README.index("python -m"), (
        "they come first"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_option_of_a_group_that_the_readme_lists_exists() -> None:
    for group, options in re.findall(r"^\| `(\w+)=` \| (.*) \|$", README, flags=re.MULTILINE):
        there = {path.stem for path in (REPO / "configs" / group).glob("*.yaml")}
        named = {word for word in re.findall(r"`(\w+)`", options) if word in there}
        assert len(named) >= 2, f"{group}: the README names {named} of {there}"


def test_the_first_page_has_no_figure_or_number_of_archived_sets() -> None:
    """Their trainings were too short to compare accuracies: the page links to the archive, and no more."""
    archived = [folder.name for folder in ARCHIVE.iterdir() if folder.is_dir()]
    assert len(archived) >= 4
    assert [name for name in archived if re.search(rf"results/(archive/)?{name}\b", README)] == []
