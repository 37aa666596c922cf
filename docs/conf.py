"""Sphinx: `make docs`, which needs no network."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPO = HERE.parent
sys.path[:0] = [str(HERE), str(REPO)]

from _layout import draw_layout  # noqa: E402
from _reference import columns_page, command_pages, setting_pages  # noqa: E402
from _results import write_results  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

import pcr_exp  # noqa: E402
from pcr_exp import cli  # noqa: E402
from pcr_exp.config.commands import PrepareConfig  # noqa: E402
from pcr_exp.config.compose import compose  # noqa: E402

GENERATED = HERE / "generated"
"""Pages that are made from the code and from results/; git ignores them."""


FILES_AND_PAGES = {
    r"results": "results/index",
    r"results/claims\.md": "results/claims",
    r"results/(\w+)/README\.md": r"results/\1",
    r"configs/experiment/README\.md": "experiments",
    r"configs/([\w.]+)": r"settings/\1",
    r"pcr_exp/cli/(\w+)\.py": r"commands/\1",
    r"pcr_exp/records/FORMAT\.md": "format",
    r"pcr_exp/training/columns\.py": "columns",
}
"""By what a link of a page leads to, the generated page that is made of it."""


def generate() -> None:
    """Make the pages anew."""
    shutil.rmtree(GENERATED, ignore_errors=True)
    pages = {f"commands/{name}": text for name, text in command_pages()}
    pages |= {f"settings/{name}": text for name, text in setting_pages()}
    pages["columns"] = columns_page()
    pages["format"] = (REPO / "pcr_exp/records/FORMAT.md").read_text("utf-8")
    listed = (REPO / "configs/experiment/README.md").read_text("utf-8")
    pages["experiments"] = _without_links_to_yaml(listed)
    for name, text in pages.items():
        path = GENERATED / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    (GENERATED / "layout.svg").write_text(draw_layout(REPO / "pcr_exp"), "utf-8")
    write_results(REPO / "results", GENERATED / "results")
    write_example(GENERATED / "whole" / "explore_example.html")


def write_example(page: Path) -> None:
    """What `pcr-exp explore` makes of the embedded photographs."""
    page.parent.mkdir(parents=True)
    few = ("dataset.num_train=64", "dataset.num_val=8", "dataset.size_px=192")
    with tempfile.TemporaryDirectory() as folder:
        config = compose(
            "prepare", PrepareConfig, *few, f"dataset.root={folder}/photos", f"records.root={folder}"
        )
        records = pcr_exp.prepare_records(config.dataset, config.records)
        if cli.main(["explore", str(records / "train"), "-o", str(page), "--images", "24"]):
            raise RuntimeError("pcr-exp explore made no page")


def _without_links_to_yaml(text: str) -> str:
    return re.sub(r"\[(\w+)\]\(\w+\.yaml\)", r"`\1`", text)


generate()

project = "pcr-exp"
author = "The pcr-exp authors"
project_copyright = "The pcr-exp authors"
version = release = pcr_exp.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
root_doc = "index"

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
default_role = "code"
nitpicky = True
nitpick_ignore_regex = [
    # Other packages' names, and ours that are arguments of the API and no part of it.
    (r"py:.*", r"(torch|numpy|np|npt|nn|collections|pathlib|os|typing|omegaconf|PIL|datetime)(\..*)?"),
    (r"py:class", r"pcr_exp\.(config|records|storage)\..*"),
]

html_theme = "furo"
html_title = "pcr-exp"
html_extra_path = ["generated/whole"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True, "footer_icons": []}
html_show_sphinx = False
html_copy_source = False


def setup(app: Sphinx) -> None:
    """Connect the two below."""
    app.connect("source-read", lead_to_generated)
    app.connect("autodoc-process-docstring", begin_with_a_comment, priority=400)


def lead_to_generated(_app: Sphinx, name: str, content: list[str]) -> None:
    """Links to files of the repository, which work where it is browsed, become links to their pages."""
    if not name.startswith("generated/"):
        up = "../" * name.count("/")
        for files, page in FILES_AND_PAGES.items():
            content[0] = re.sub(rf"\]\({up}\.\./{files}\)", rf"]({up}generated/{page}.md)", content[0])


def begin_with_a_comment(*given: Any) -> None:
    """Napoleon takes what stands before an attribute's first colon for a type; in ours it is a sentence."""
    _, what, _, _, _, lines = given
    if what in ("attribute", "data", "property"):
        lines[0:0] = ["..", ""]
