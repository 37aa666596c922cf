"""The README's commands, tables and links match the program and the committed results."""

import re
import shlex
import shutil
import subprocess
import tomllib
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from code_blocks import Block, run_block
from composing import SCHEMAS, compose

from experiments.claims.page import BEGIN, END
from pcr_exp import cli
from pcr_exp.cli.typed import check_overrides
from pcr_exp.measuring.stalls import measure

REPO = Path(__file__).parents[1]
README = (REPO / "README.md").read_text()
PAGES = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "results").glob("*/README.md"))]


def commands(page: Path) -> list[str]:
    """Return a page's `python -m experiments...` commands as a shell starts them, with variables expanded."""
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(), flags=re.DOTALL)
    started = r"""() { printf '%s\0' "$FUNCNAME" "$@"; printf '\n'; }"""
    shell = "".join(f"{name}{started}\n" for name in ("python", "torchrun"))
    done = subprocess.run(
        ["/bin/bash", "-c", shell + "\n".join(blocks)],
        env={"PATH": "", "HOME": "/home/reader"},  # no other command can be started
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line.rstrip("\0").split("\0") for line in done.stdout.split("\0\n") if line]
    return [shlex.join(words) for words in found if any(word.startswith("experiments.") for word in words)]


@pytest.mark.parametrize("command", sorted({command for page in PAGES for command in commands(page)}))
def test_every_command_composes(command: str) -> None:
    words = shlex.split(command)
    (place,) = (i for i, word in enumerate(words) if word.startswith("experiments."))
    module, arguments = words[place], words[place + 1 :]
    runner = module.removeprefix("experiments.")
    if runner not in SCHEMAS:  # a program with options of its own
        assert find_spec(module) is not None
        return
    own = [word for word in arguments if word != "-m"]
    check_overrides(own, sweeps="-m" in arguments or any(word.startswith("hydra.mode=") for word in own))
    # A sweep composes each value in turn; its first is enough. Hydra's own overrides are skipped.
    first = [re.sub(r"^([^=]+=[^,\[]*),.*$", r"\1", word) for word in own if not word.startswith("hydra")]
    assert compose(runner, *first) is not None


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


def test_it_is_a_first_page() -> None:
    assert README.count("\n") <= 120 and len(README.split()) <= 1500
    before = README.partition("## Your own photographs")[0]
    assert before.count("![") == 1 and before.count("\n* **") == 3


def test_every_command_and_extra_of_its_tables_exists() -> None:
    table = README.partition("## Commands")[2].partition("## Limits")[0]
    named = [
        word
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for word in re.findall(r"`(\w+)`", row)
    ]
    assert sorted(named) == sorted({**cli.TOOLS, **cli.RUNNERS})
    extras = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    cells = first_cells(README.partition("| extra |")[2].partition("## ")[0])
    assert {word for cell in cells for word in re.findall(r"`([\w-]+)`", cell)} <= set(extras)


def first_cells(table: str) -> list[str]:
    """Return the first cell of each row that begins with code."""
    return re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)


def test_experiments_of_the_papers_table_compose() -> None:
    rows = README.partition(f"{BEGIN}\n")[2].partition(END)[0].splitlines()[2:]
    for row in rows:
        (name,) = re.findall(r"`(\w+)` \|$", row)
        runner = "throughput" if name == "throughput_vs_scan" else "train"
        assert compose(runner, f"experiment={name}") is not None


@pytest.mark.program
def test_own_photographs_in_four_commands_print_what_it_says(reader: Path) -> None:
    """Every line of the README is printed, apart from its numbers."""
    code, said = re.search(
        r"```bash\n(pcr-exp prepare.*?)```.*?```text\n(.*?)```", README, re.DOTALL
    ).groups()
    assert code.count("\n") == 4
    shutil.rmtree(reader / "data")  # the records that the fixture prepared
    printed = masked(run_block(Block("bash", code, "run"), reader))
    for line in said.splitlines():
        assert masked(line.removeprefix("... ")) in printed, line


def masked(text: str) -> str:
    """Replace numbers with #, and remove spaces and line breaks, which a terminal adds."""
    return re.sub(r"\s+", "", re.sub(r"\d[\d.,]*", "#", text))


def test_the_training_loop_runs_as_it_stands(
    reader: Path,  # noqa: ARG001
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop runs with smaller batches and crops, and without workers."""
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert sum(bool(line) for line in block.splitlines()) <= 12
    for given, smaller in {"224": "32", "256": "8", "num_workers=4": "num_workers=0"}.items():
        assert given in block
        block = block.replace(given, smaller)
    monkeypatch.setattr("pcr_exp.measure", partial(measure, num_batches=2, num_warmup=1))
    seen: dict[str, Any] = {}
    exec(block, seen)
    assert list(seen["images"].shape[1:]) == [3, 32, 32]
    assert "model alone" in capsys.readouterr().out


def test_the_table_of_claims_is_the_one_of_the_results() -> None:
    """`python -m experiments.report readme=README.md` writes both."""
    _, begun, rest = README.partition(f"{BEGIN}\n")
    table, ended, _ = rest.partition(f"\n{END}")
    assert begun and ended and table.count("\n") > 5
    assert table in (REPO / "results" / "claims.md").read_text()
