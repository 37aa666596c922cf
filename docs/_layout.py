"""The drawing of a package: a box for each of its packages, in layers, and arrows for imports; plain SVG."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 104, 30, 14, 34, 16
_STYLE = """
  text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #1a1a1a }
  rect.box { fill: #eef3fb; stroke: #4a6fa5; stroke-width: 1.2; rx: 5 }
  path { fill: none; stroke: #7a8aa0; stroke-width: 1; opacity: 0.7; marker-end: url(#end) }
  path.end { fill: #7a8aa0; stroke: none; marker-end: none }
"""


def imports_between(package: Path) -> dict[str, set[str]]:
    """By package (folder or module) of a package, the others of it that its modules import."""
    found: dict[str, set[str]] = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).parts[0].removesuffix(".py")
        if name.startswith("__"):
            continue
        targets = found.setdefault(name, set())
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module == package.name:
                modules += [f"{package.name}.{alias.name}" for alias in node.names]
            parts = [module.split(".") for module in modules]
            targets |= {part[1] for part in parts if part[0] == package.name and len(part) > 1}
    return {name: {one for one in targets if one in found and one != name} for name, targets in found.items()}


def layers_of(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Packages from those that import nothing to those that nothing imports; each above all that it imports.

    Raises:
        ValueError: imports go round in a circle.
    """
    layers: list[list[str]] = []
    left = dict(arrows)
    while left:
        layer = sorted(name for name, targets in left.items() if not targets & left.keys())
        if not layer:
            raise ValueError(f"imports go round in a circle: {', '.join(sorted(left))}")
        layers.append(layer)
        left = {name: targets for name, targets in left.items() if name not in layer}
    return layers


def direct(arrows: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """The arrows that no chain of other arrows implies: enough to see every layer, few enough to follow."""
    below: dict[str, set[str]] = {}
    for layer in layers_of(arrows):
        for name in layer:
            below[name] = arrows[name].union(*(below[target] for target in arrows[name]))
    return {
        (name, target)
        for name, targets in arrows.items()
        for target in targets
        if not any(target in below[other] for other in targets - {target})
    }


def draw_layout(package: Path) -> str:
    """The drawing as SVG: the lowest layer at the bottom."""
    arrows = imports_between(package)
    layers = layers_of(arrows)[::-1]
    widest = max(map(len, layers))
    width = 2 * MARGIN + widest * BOX_WIDTH + (widest - 1) * GAP_X
    height = 2 * MARGIN + len(layers) * BOX_HEIGHT + (len(layers) - 1) * GAP_Y
    places: dict[str, tuple[float, float]] = {}
    for row, layer in enumerate(layers):
        start = (width - len(layer) * BOX_WIDTH - (len(layer) - 1) * GAP_X) / 2
        for column, name in enumerate(layer):
            places[name] = start + column * (BOX_WIDTH + GAP_X), MARGIN + row * (BOX_HEIGHT + GAP_Y)
    lines = [_arrow(places[name], places[target]) for name, target in sorted(direct(arrows))]
    for name, (x, y) in places.items():
        lines.append(f'<rect class="box" x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"/>')
        lines.append(f'<text x="{x + BOX_WIDTH / 2:g}" y="{y + 20:g}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img">\n'
        f"<title>Packages of {package.name} and their imports</title>\n<style>{_STYLE}</style>\n"
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" class="end"/></marker></defs>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n' + "\n".join(lines) + "\n</svg>\n"
    )


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    x, y = start[0] + BOX_WIDTH / 2, start[1] + BOX_HEIGHT
    to_x, to_y = end[0] + BOX_WIDTH / 2, end[1] - 2
    bend = (to_y - y) / 2
    return f'<path d="M{x:g} {y:g}C{x:g} {y + bend:g} {to_x:g} {to_y - bend:g} {to_x:g} {to_y:g}"/>'
