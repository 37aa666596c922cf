"""The README's commands, tables and links are those of the program and of the committed results."""

import re
import shlex
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from composing import SCHEMAS, compose
from numbered_records import encode_numbered, square_crops

from experiments.claims.page import BEGIN, END
from pcr_exp.cli.records import command_parser
from pcr_exp.measuring.stalls import measure

REPO = Path(__file__).parents[1]
README = (REPO / "README.md").read_text()
PAGES = [REPO / "README.md", *sorted((REPO / "results").glob("*/README.md"))]


def commands(page: Path) -> list[str]:
    """Every `python -m experiments...` line in the code blocks of a page, without comments."""
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(), flags=re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.partition("  #")[0].strip() for line in lines if line.startswith("python -m experiments.")]


@pytest.mark.parametrize("command", sorted({command for page in PAGES for command in commands(page)}))
def test_every_command_composes(command: str) -> None:
    _, _, module, *arguments = shlex.split(command)
    runner = module.removeprefix("experiments.")
    if runner not in SCHEMAS:  # a program with options of its own
        assert find_spec(module) is not None
        return
    # A sweep composes each value in turn; its first will do.
    own = [
        word for word in arguments if word != "-m" and not word.startswith("hydra")
    ]  # Hydra's are not ours
    overrides = [re.sub(r"^([^=]+=[^,\[]*),.*$", r"\1", word) for word in own]
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


def test_every_command_of_the_package_is_understood() -> None:
    lines = [
        line.partition("  #")[0] for line in README.splitlines() if line.startswith("python -m pcr_exp ")
    ]
    assert {line.split()[3] for line in lines} == {"inspect", "verify", "extract", "convert", "doctor"}
    for line in lines:
        assert callable(command_parser().parse_args(shlex.split(line)[3:]).run)


def test_the_training_loop_runs_as_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On small records in place of the address, in smaller batches of smaller crops."""
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "in").mkdir()
    jpegs = square_crops([(9 * i, 5 * i) for i in range(24)], 40, 85)
    records = encode_numbered(jpegs, tmp_path / "in", images_per_record=8)
    address = {'"s3://bucket/pets/train"': repr(str(records))}
    shorter = address | {"224": "32", "256": "8", "num_workers=4": "num_workers=0"}
    for given, smaller in shorter.items():
        assert given in block
        block = block.replace(given, smaller)
    monkeypatch.setattr("pcr_exp.measure", partial(measure, num_batches=2, num_warmup=1))
    seen: dict[str, Any] = {}
    exec(block, seen)
    assert list(seen["images"].shape) == [8, 3, 32, 32] and seen["label"] == 17
    assert "model alone" in capsys.readouterr().out


def test_the_table_of_claims_is_the_one_of_the_results() -> None:
    """`python -m experiments.report readme=README.md` writes both."""
    _, begun, rest = README.partition(f"{BEGIN}\n")
    table, ended, _ = rest.partition(f"\n{END}")
    assert begun and ended and table.count("\n") > 5
    assert table in (REPO / "results" / "claims.md").read_text()
