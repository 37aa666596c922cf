"""The plan of the house: a room imports only rooms to its left, and no file hides in a catch-all module."""

import ast
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
LAYERS = [
    {"places", "redaction"},
    {"errors", "numerics"},
    {"system"},
    {"config"},
    {"datasets", "images", "storage", "gradients", "activations"},
    {"records"},
    {"policies"},
    {"loading"},
    {"training"},
    {"measuring"},
    {"runs"},
    {"analysis"},
    {"runners"},
    {"experiments"},
]
"""Rooms of one layer do not know each other."""
RANKS = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}
SOURCES = sorted([*(REPO / "pcr_exp").rglob("*.py"), *(REPO / "experiments").rglob("*.py")])


def room_of(module: str) -> str | None:
    """The room of a dotted module name, or None if it is not ours."""
    parts = module.split(".")
    if parts[0] == "experiments":
        return "experiments"
    if parts[0] != "pcr_exp" or len(parts) < 2:
        return None
    return parts[1]


def imported_modules(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the whole module name"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def backward_imports(room: str, modules: set[str]) -> list[str]:
    """Imports from `room` that run against the plan."""
    targets = {module: room_of(module) for module in modules}
    return sorted(
        module
        for module, target in targets.items()
        if target is not None and target != room and RANKS[target] >= RANKS[room]
    )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(REPO)))
def test_imports_run_one_way(path: Path) -> None:
    relative = path.relative_to(REPO)
    room = room_of(".".join(relative.with_suffix("").parts))
    if room in (None, "__init__", "__main__"):  # these stand above all rooms
        return
    assert backward_imports(room, imported_modules(path)) == []


def test_the_walk_would_notice_an_arrow_that_runs_back() -> None:
    assert backward_imports("storage", {"pcr_exp.records.reader"}) == ["pcr_exp.records.reader"]
    assert backward_imports("images", {"pcr_exp.storage.local"}) == ["pcr_exp.storage.local"]
    assert backward_imports("errors", {"pcr_exp.config"}) == ["pcr_exp.config"]
    assert backward_imports("records", {"pcr_exp.storage.throttle", "torch", "pcr_exp.errors"}) == []


def test_every_room_is_on_the_plan() -> None:
    inside = [path for path in (REPO / "pcr_exp").iterdir() if path.is_dir() or path.suffix == ".py"]
    rooms = {path.stem for path in inside if not path.name.startswith("__")}
    assert rooms == set(RANKS) - {"experiments"}


def test_no_catch_all_modules() -> None:
    assert [path for path in SOURCES if path.stem in {"utils", "util", "helpers", "common", "misc"}] == []
