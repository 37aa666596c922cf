"""The layout: packages import only packages of lower layers, and none imports the reproduction."""

import ast
import re
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
    {"api", "training"},
    {"measuring"},
    {"runs"},
    {"analysis"},
    {"cli"},
]
"""Packages from the lowest layer to the highest. Packages of one layer do not import each other."""
RANKS = {package: rank for rank, layer in enumerate(LAYERS) for package in layer}
LIBRARY = sorted((REPO / "pcr_exp").rglob("*.py"))
REPRODUCTION = sorted((REPO / "experiments").rglob("*.py"))


def package_of(module: str) -> str | None:
    """Return the package of a dotted module name, or None if it is not ours."""
    parts = module.split(".")
    return parts[1] if parts[0] == "pcr_exp" and len(parts) > 1 else None


def folder_of(module: str) -> str | None:
    """Return the reproduction's folder that contains a module, or None."""
    parts = module.split(".")
    is_folder = parts[0] == "experiments" and len(parts) > 1 and (REPO / "experiments" / parts[1]).is_dir()
    return parts[1] if is_folder else None


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


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(REPO).with_suffix("").parts)


def backward_imports(package: str, modules: set[str]) -> list[str]:
    """Return the imports in `package` that the layout forbids."""
    targets = {module: package_of(module) for module in modules}
    return sorted(
        module
        for module, target in targets.items()
        if target is not None and target != package and RANKS[target] >= RANKS[package]
    )


@pytest.mark.parametrize("path", LIBRARY, ids=dotted)
def test_imports_run_one_way_and_none_leaves_the_library(path: Path) -> None:
    package, modules = package_of(dotted(path)), imported_modules(path)
    assert [module for module in modules if module.partition(".")[0] == "experiments"] == []
    if package not in (None, "__init__", "__main__"):  # these may import any package
        assert backward_imports(package, modules) == []


def test_folders_of_the_reproduction_know_each_other_one_way() -> None:
    arrows: dict[str, set[str]] = {}
    for path in REPRODUCTION:
        if folder := folder_of(dotted(path)):
            targets = {folder_of(module) for module in imported_modules(path)}
            arrows.setdefault(folder, set()).update({t for t in targets if t} - {folder})
    assert circle(arrows) == []
    of_commands = {p.stem for p in REPRODUCTION if p.parent == REPO / "experiments" and p.stem != "__init__"}
    for path in REPRODUCTION:
        if folder_of(dotted(path)):
            above = {m.split(".")[1] for m in imported_modules(path) if m.startswith("experiments.")}
            assert above & of_commands == set(), f"{path} imports a command"


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """Return the names that are on a cycle or lead to one, sorted."""
    left = dict(arrows)
    while ends := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in ends:
            del left[name]
    return sorted(left)


def test_the_walk_would_notice_an_arrow_that_runs_back() -> None:
    assert backward_imports("storage", {"pcr_exp.records.reader"}) == ["pcr_exp.records.reader"]
    assert backward_imports("images", {"pcr_exp.storage.local"}) == ["pcr_exp.storage.local"]
    assert backward_imports("errors", {"pcr_exp.config"}) == ["pcr_exp.config"]
    assert backward_imports("records", {"pcr_exp.storage.throttle", "torch", "pcr_exp.errors"}) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]


def test_every_package_is_on_the_plan() -> None:
    inside = [path for path in (REPO / "pcr_exp").iterdir() if path.is_dir() or path.suffix == ".py"]
    assert {path.stem for path in inside if not path.name.startswith("__")} == set(RANKS)


def test_no_catch_all_modules() -> None:
    catch_all = {"utils", "util", "helpers", "common", "misc"}
    assert [path for path in [*LIBRARY, *REPRODUCTION] if path.stem in catch_all] == []


def test_a_storage_is_asked_for_nothing_that_the_protocol_does_not_promise() -> None:
    asked = re.compile(r"(get|has)attr\([\w.]*\b_?(storage|inner|place|remote)\b")
    assert asked.search('getattr(self._records.storage, "reads_many", False)')
    assert [str(path) for path in [*LIBRARY, *REPRODUCTION] if asked.search(path.read_text())] == []
