"""The site builds without warnings or network access, and its search finds the right pages."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from code_blocks import REPO
from sphinx.search.en import SearchEnglish

from pcr_exp import cli
from pcr_exp.places import CONFIGS
from pcr_exp.training.columns import COLUMNS

pytestmark = pytest.mark.program
TITLE_SCORE, TERM_SCORE = 15, 5
"""Scores of a word in a title and in the text, as in Sphinx's searchtools.js."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-n", "--keep-going", "-q", "docs", str(out)],
        cwd=REPO,
        env={**os.environ, **nowhere, "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def index(site: Path) -> dict[str, Any]:
    text = (site / "searchindex.js").read_text()
    return dict(json.loads(text.removeprefix("Search.setIndex(").removesuffix(")")))


def found_first(index: dict[str, Any], query: str) -> str:
    """Return the page with the highest score among those with all words of a query."""
    scores: list[dict[int, int]] = []
    stem = SearchEnglish({}).stem
    for word in map(stem, re.findall(r"\w+", query.lower())):
        of_word: dict[int, int] = {}
        for key, score in (("titleterms", TITLE_SCORE), ("terms", TERM_SCORE)):
            places = index[key].get(word, [])
            for page in [places] if isinstance(places, int) else places:
                of_word[page] = max(of_word.get(page, 0), score)
        scores.append(of_word)
    pages = set.intersection(*(set(of_word) for of_word in scores))
    assert pages, f"no page has {query}"
    best = max(pages, key=lambda page: (sum(of_word[page] for of_word in scores), -page))
    return str(index["docnames"][best])


@pytest.mark.parametrize(
    ("query", "pages"),
    [
        ("antialias", {"explanation/decoding"}),
        ("s3", {"guides/object_stores"}),
        ("resume", {"guides/sweeps", "guides/own_loop", "explanation/order"}),
        ("scan=mixture", {"guides/policies", "generated/settings/scan"}),
        ("installing", {"start/install"}),
    ],
)
def test_a_search_ends_on_the_page_that_answers(index: dict[str, Any], query: str, pages: set[str]) -> None:
    assert found_first(index, query) in pages


def test_every_command_group_and_column_has_its_place(site: Path) -> None:
    pages = {str(path.relative_to(site).with_suffix("")) for path in site.rglob("*.html")}
    assert {f"generated/commands/{name}" for name in cli.TOOLS | cli.RUNNERS} <= pages
    groups = {path.name for path in CONFIGS.iterdir() if path.is_dir()} - {"experiment", "hydra", "runner"}
    assert {f"generated/settings/{group}" for group in groups} <= pages
    columns = (site / "generated" / "columns.html").read_text()
    assert [column.name for column in COLUMNS if f">{column.name}<" not in columns] == []
    storage = re.sub(r"<[^>]+>", "", (site / "generated" / "settings" / "storage.html").read_text())
    for wanted in ("storage.bandwidth_mib_per_s", "float or null", "MiB/s", "storage=hdd", "seek_ms=8"):
        assert wanted in storage


def test_results_are_pages_with_their_pictures(site: Path) -> None:
    for page in sorted((REPO / "results").glob("*/README.md")):
        assert (site / "generated" / "results" / f"{page.parent.name}.html").exists()
    pictures = re.findall(
        r'src="([^"]+\.(?:png|svg))"', (site / "generated/results/finetuning.html").read_text()
    )
    assert pictures and all((site / "generated/results" / path).exists() for path in pictures)


def test_the_layout_shows_every_package_and_arrows_run_down(site: Path) -> None:
    (drawing,) = site.glob("_images/layout.svg")
    boxes = {name: float(y) for y, name in re.findall(r'y="([\d.]+)">(\w+)<', drawing.read_text())}
    packages = {path.stem for path in (REPO / "pcr_exp").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert {name for name in packages if not name.startswith("__")} == set(boxes)
    assert boxes["cli"] < boxes["runs"] < boxes["storage"] < boxes["errors"]
