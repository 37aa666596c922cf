"""Pages of results as pages of the site: README files of results/, their pictures, and files that they link.

A link to a page of the site leads there. A file that is linked is copied along. Other links become words.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

QUESTIONS: dict[str, str] = {
    "What is seen and kept": "sample_image quality scan_scripts decode_modes antialias reduced_sizes",
    "What is learned": "tolerance evaluate fair_baseline finetuning equal_bytes from_scratch buying_back "
    "datasets",
    "How fast": "throughput throttle time_to_target object_stores cache records_speed throughput_model scale "
    "changing_bandwidth reference_scripts",
    "Related methods": "echo_factor echo_variants gradients gradients_resnet18 codec_speed activations "
    "compressed_activations combined",
}
"""Pages of the index in their order, below headings; a page that none has stands below `More`."""
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
_COPIED = (".png", ".svg", ".csv", ".html")
_CLAIMS = "claims"
_INTRODUCTION = (
    "One page a question. Each says what was measured on what, shows the figure and the table, what they "
    "mean, what limits them, and how to make them again with cost and hardware. [Every claim of the "
    "papers](claims.md) is held against these files."
)


def write_results(results: Path, out: Path) -> None:
    """Write a page for claims.md, for each `results/*/README.md` and what they link to, and `index.md`."""
    pages = {results / f"{_CLAIMS}.md": _CLAIMS}
    pages |= {path: path.parent.name for path in sorted(results.glob("*/README.md"))}
    index = list(pages.values())
    waiting = list(pages)
    while waiting:
        for target in _targets(waiting.pop()):
            if target.suffix == ".md" and target.is_relative_to(results) and target not in pages:
                pages[target] = "/".join(target.relative_to(results).with_suffix("").parts)
                waiting.append(target)
    for source, name in pages.items():
        page = _Page(source, out / f"{name}.md", results, out, pages)
        _write(page.to, page.text() if name in index else f"---\norphan: true\n---\n\n{page.text()}")
    _write(out / "index.md", _index(index))


def _index(names: Iterable[str]) -> str:
    listed = {title: group.split() for title, group in QUESTIONS.items()}
    others = sorted({*names} - {_CLAIMS}.union(*listed.values()))
    parts = ["# Results", _INTRODUCTION]
    for title, group in {"Claims": [_CLAIMS], **listed, "More": others}.items():
        lines = "\n".join(name for name in group if name in names)
        if lines:
            parts.append(f"## {title}\n\n```{{toctree}}\n:maxdepth: 1\n\n{lines}\n```")
    return "\n\n".join(parts) + "\n"


def _targets(page: Path) -> Iterator[Path]:
    for _, _, address in _LINK.findall(_FENCED.sub("", page.read_text("utf-8"))):
        if target := _target(page, address):
            yield target


def _target(page: Path, address: str) -> Path | None:
    """The file or folder that a link of a page leads to; None of an address elsewhere."""
    if "://" in address or address.startswith("#"):
        return None
    return Path(os.path.normpath(page.parent / address.partition("#")[0]))


@dataclass(frozen=True, slots=True)
class _Page:
    source: Path
    to: Path
    results: Path
    out: Path
    pages: Mapping[Path, str]
    """By source, the name of every page of the site."""

    def text(self) -> str:
        parts = _FENCED.split(self.source.read_text("utf-8"))
        return "".join(part if part.startswith("```") else _LINK.sub(self._link, part) for part in parts)

    def _link(self, found: re.Match[str]) -> str:
        picture, words, address = found.groups()
        target = _target(self.source, address)
        if target is None:
            return found[0]
        if page := self.pages.get(target) or self.pages.get(target / "README.md"):
            return f"[{words}]({self._relative(self.out / f'{page}.md')})"
        if target.suffix in _COPIED and target.is_file() and target.is_relative_to(self.results):
            copy = self.out / target.relative_to(self.results)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, copy)
            if picture:
                return f"![{words}]({self._relative(copy)})"
            return f"{{download}}`{words.replace('`', '')} <{self._relative(copy)}>`"
        return words

    def _relative(self, target: Path) -> str:
        return os.path.relpath(target, self.to.parent)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
