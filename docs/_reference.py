"""Pages of the reference that are made from the code: commands, settings, columns of rows.

A setting's type and default are those of its dataclass, its meaning is the docstring below the field, and
options are the YAML files: nothing here can be out of date.
"""

from __future__ import annotations

import dataclasses
import inspect
import io
import itertools
import os
import re
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import yaml
from omegaconf import MISSING

from pcr_exp import cli
from pcr_exp.cli.help import meaning_of
from pcr_exp.config.components import schemas
from pcr_exp.places import CONFIGS
from pcr_exp.training.columns import COLUMNS

UNITS = {
    "_mib_per_s": "MiB/s",
    "_mbit_per_s": "Mbit/s",
    "images_per_s": "images/s",
    "requests_per_s": "requests/s",
    "per_gb": "dollars/GB",
    "per_1000_requests": "dollars",
    "_mib": "MiB",
    "_bytes": "bytes",
    "_pixels": "pixels",
    "_px": "pixels",
    "image_size": "pixels",
    "_ms": "ms",
    "_s": "s",
}
"""By the end of a setting's name, the first that fits."""
_NOT_OF_A_COMMAND = ("experiment", "hydra", "runner")
_HIDDEN = ("smoke", "note")
_HELP_COLUMNS = "96"
_HEADING = re.compile(r"^# @package|^#\s*$")


def command_pages() -> Iterator[tuple[str, str]]:
    """(name, text) of a page for each command of `pcr-exp`, with its own `--help`."""
    for name, about in (cli.TOOLS | cli.RUNNERS).items():
        text = f"# pcr-exp {name}\n\n{about[0].upper()}{about[1:]}.\n\n"
        yield name, f"{text}```text\n{_own_help(name).rstrip()}\n```\n"


def setting_pages() -> Iterator[tuple[str, str]]:
    """(name, text) of a page for each configuration group, then `commands` with what is no group's."""
    found, own = _groups()
    for folder in sorted(CONFIGS.iterdir()):
        if folder.is_dir() and folder.name not in _NOT_OF_A_COMMAND:
            yield folder.name, _group_page(folder.name, found.get(folder.name))
    parts = ["# Settings of commands", "What belongs to no group; see also each command's `--help`."]
    parts += [f"## {name}\n\n{_table(schema, '', fields)}" for name, (schema, fields) in own.items()]
    yield "commands", "\n\n".join(parts) + "\n"


def columns_page() -> str:
    """A table of the columns of `rows.jsonl`."""
    lines = ["# Columns of rows", "Lines of a run's `rows.jsonl`, by their `kind`: train, eval or policy."]
    rows = [
        (f"`{c.name}`", ", ".join(c.rows), c.unit, c.kind, "yes" if c.deterministic else "no", c.meaning)
        for c in COLUMNS
    ]
    table = _markdown(("column", "rows", "unit", "kind", "same in every run", "meaning"), rows)
    return "\n\n".join([*lines, table]) + "\n"


def _own_help(name: str) -> str:
    """What `pcr-exp <name> --help` prints."""
    with _started_as(["python", "-m", "pcr_exp", name, "--help"]), redirect_stdout(io.StringIO()) as said:
        try:
            cli.main([name, "--help"])
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(f"pcr-exp {name} --help ended with {ended.code}") from ended
    return said.getvalue()


@contextmanager
def _started_as(words: list[str]) -> Iterator[None]:
    argv, orig_argv, columns = sys.argv, sys.orig_argv, os.environ.get("COLUMNS")
    sys.argv, sys.orig_argv = words, words
    os.environ["COLUMNS"] = _HELP_COLUMNS
    try:
        yield
    finally:
        sys.argv, sys.orig_argv = argv, orig_argv
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns


def _groups() -> tuple[dict[str, type], dict[str, tuple[type, list[str]]]]:
    """The dataclass of each group, and by command the settings of its own that lie in none."""
    found: dict[str, type] = {}
    own: dict[str, tuple[type, list[str]]] = {}
    for name in cli.RUNNERS:
        schema = cli.schemas().get(name)
        if schema is None:
            continue
        for path, nested in _nested(schema):
            if (CONFIGS / path).is_dir():
                found.setdefault(path, nested)
        groups = {path for path, _ in _nested(schema) if (CONFIGS / path).is_dir()}
        fields = [field.name for field in dataclasses.fields(schema) if field.name not in {*groups, *_HIDDEN}]
        own[f"pcr-exp {name}"] = schema, fields
    return found, own


def _nested(schema: type, prefix: str = "") -> Iterator[tuple[str, type]]:
    """(dotted name, dataclass) of every setting that is a dataclass, or null or one."""
    for name, kind in _types(schema).items():
        for one in (kind, *typing.get_args(kind)):
            if isinstance(one, type) and dataclasses.is_dataclass(one):
                yield f"{prefix}{name}", one
                yield from _nested(one, f"{prefix}{name}.")


def _group_page(group: str, base: type | None) -> str:
    parts = [f"# {group}"]
    if base is not None and base.__doc__:
        parts.append(_code(base.__doc__))
    options = {path.stem: path for path in sorted((CONFIGS / group).glob("*.yaml"))}
    rows = [(f"`{group}={name}`", _about(path), _stated(path)) for name, path in options.items()]
    parts += ["## Options", _markdown(("option", "about", "sets"), rows)]
    if base is not None:
        parts += ["## Settings", _table(base, f"{group}.")]
    for schema, names in _own_schemas(group, base).items():
        fields = [
            one.name for one in dataclasses.fields(schema) if base is None or one.name not in _types(base)
        ]
        title = ", ".join(f"{group}={name}" for name in names)
        parts += [f"## Settings of {title}", _table(schema, f"{group}.", fields)] if fields else []
    return "\n\n".join(parts) + "\n"


def _own_schemas(group: str, base: type | None) -> dict[type, list[str]]:
    found: dict[type, list[str]] = {}
    for name, schema in schemas(group).items():
        if schema is not base:
            found.setdefault(schema, []).append(name)
    return found


def _table(schema: type, prefix: str, only: list[str] | None = None) -> str:
    rows = list(_setting_rows(schema, prefix, only))
    return _markdown(("setting", "type", "unit", "default", "meaning"), rows)


def _setting_rows(schema: type, prefix: str, only: list[str] | None = None) -> Iterator[tuple[str, ...]]:
    kinds = _types(schema)
    for field in dataclasses.fields(schema):
        if (only is not None and field.name not in only) or field.name in _HIDDEN:
            continue
        kind = kinds[field.name]
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and not (CONFIGS / field.name).is_dir():
            yield from _setting_rows(kind, f"{prefix}{field.name}.")
            continue
        meaning = _code(meaning_of(schema, field.name))
        shown = f"`{prefix}{field.name}`", f"`{_type_words(kind)}`", _unit(field.name), _default(field)
        yield (*shown, meaning)


def _types(schema: type) -> dict[str, Any]:
    hints = typing.get_type_hints(schema)
    return {field.name: hints[field.name] for field in dataclasses.fields(schema)}


def _type_words(kind: Any) -> str:
    words = inspect.formatannotation(kind).replace("NoneType", "null").replace("None", "null")
    return re.sub(r"\b(?:[a-z_]+\.)+", "", words).replace("|", "or")


def _unit(name: str) -> str:
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "required"
    if value == MISSING:
        return "of the option"
    if dataclasses.is_dataclass(value):
        return "of the option"
    return f"`{_typed(value)}`"


def _typed(value: Any) -> str:
    """As it would be typed."""
    if isinstance(value, list):
        return f"[{','.join(map(_typed, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_typed(one)}" for key, one in value.items()) + "}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _about(path: Path) -> str:
    """The comment at the head of a YAML file, up to its first empty line; its indented lines are examples."""
    head = itertools.takewhile(lambda line: line.startswith("#"), path.read_text("utf-8").splitlines())
    lines = [line.lstrip("#") for line in head if not line.startswith("# @package")]
    kept = list(itertools.takewhile(str.strip, lines))
    words = " ".join(line.strip() for line in kept if not line.startswith("   "))
    examples = [_example(line) for line in kept if line.startswith("   ")]
    return "<br>".join([_code(words), *examples])


def _example(line: str) -> str:
    """`scan=mixture scan.group=2    what it does` with the settings as code."""
    settings, _, about = line.strip().partition("  ")
    return f"`{settings}` {_code(about)}".rstrip()


def _stated(path: Path) -> str:
    stated: Mapping[str, Any] = yaml.safe_load(path.read_text("utf-8")) or {}
    plain = {key: value for key, value in stated.items() if key not in ("defaults", "name", "smoke")}
    return " ".join(f"`{key}={_typed(value)}`" for key, value in plain.items() if not isinstance(value, dict))


def _code(text: str) -> str:
    """Docstrings in reST as Markdown, in one line that a cell of a table can hold."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
