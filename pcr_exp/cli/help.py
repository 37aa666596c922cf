"""`--help` of the runners: applicable settings with meanings and defaults, the choices, and examples.

Meanings are the docstrings of the settings' dataclasses, defaults come from Hydra's composition, and choices
are the YAML files, so nothing here can be out of date. Hydra's own page takes eight times as long, shows no
meanings, and lists groups that a command rejects.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, ListConfig, OmegaConf

from pcr_exp.cli.typed import check_overrides
from pcr_exp.config.components import config_folders
from pcr_exp.config.compose import composed, named_packages, prepare_hydra
from pcr_exp.errors import ConfigError
from pcr_exp.places import CONFIGS, as_typed

FLAGS = ("--help", "-h")
_HIDDEN = ("hydra", "smoke", "note")
"""Settings that are not meant to be typed: they serve Hydra, `runner=smoke` and readers of a YAML file."""
_INDENT = 38
"""Width of the column of settings and defaults. Meanings follow on the right, or below longer entries."""
_LONGEST_VALUE = 30
_RUNNER = re.compile(r"-m experiments\.(\w+)")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
_MORE = """-m                sweeps over comma-separated values (runner=fail_fast: stops when one fails)
--dry-run         shows what would run and at what cost, and runs nothing
runner=smoke      runs it at a small size, in seconds
--help <group>    explains one group, such as its options: {groups}
--cfg job         prints the configuration; --hydra-help is Hydra's own"""


@dataclass(frozen=True, slots=True)
class Setting:
    """A line of the help page."""

    key: str
    default: str
    meaning: str


def is_asked(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for help."""
    return any(argument in FLAGS for argument in arguments)


def help_page(runner: str, schema: type, arguments: Sequence[str]) -> str:
    """Return the help page.

    Args:
        runner: Name of the command, such as `train`.
        schema: The dataclass of its settings.
        arguments: Arguments of the command line. Overrides choose the settings that are shown; a word without
            `=`, such as `storage`, is a group or setting to explain in full.

    Raises:
        ConfigError: there is no such group or setting, or a package of components cannot be imported.
        hydra.errors.HydraException: an override names an option that does not exist.
    """
    overrides = [one for one in arguments if "=" in one and not one.startswith(("-", "hydra"))]
    topics = [one for one in arguments if "=" not in one and not one.startswith(("-", "~", "+"))]
    config = _composed(runner, schema, overrides)
    width = min(shutil.get_terminal_size((110, 24)).columns, 120)
    if topics:
        return "\n".join(line for topic in topics for line in _about(topic, runner, config, width))
    return "\n".join(_overview(runner, config, width))


def _composed(runner: str, schema: type, overrides: Sequence[str]) -> DictConfig:
    """Compose the configuration, with Hydra's node and without overrides that sweep."""
    prepare_hydra(named_packages(overrides), {runner: schema})
    check_overrides(overrides, sweeps=True)
    parser = OverridesParser.create()
    single = [text for text in overrides if not parser.parse_override(text).is_sweep_override()]
    return composed(runner, single, with_hydra=True)


def known_keys(runner: str, schema: type, overrides: Sequence[str]) -> list[str]:
    """Return the settings and groups of a command, with the options that the overrides choose."""
    config = _composed(runner, schema, overrides)
    return [*_choices(config), *(setting.key for setting in _settings(config))]


def _overview(runner: str, config: DictConfig, width: int) -> Iterator[str]:
    command = as_typed(f"python -m experiments.{runner}")
    yield from (
        f"usage: {command} [group=option ...] [setting=value ...]",
        "",
        str(config.hydra.help.header).rstrip(),
    )
    yield from ("", as_typed(str(config.hydra.help.footer)).rstrip(), "")
    choices = _choices(config)
    keys = [key for key in map(str, config) if key not in _HIDDEN]
    sections = [key for key in keys if _schema(config, key) is not None]
    yield "Settings and their defaults"
    for key in keys:
        if key not in sections:
            yield from _lines(_setting(config, key), width)
    for key in sections:
        yield from ("", _heading(key, config, choices))
        if key in choices:
            yield from _wrapped("options: " + ", ".join(_options(key, runner)), width, "  ")
        for setting in _settings(config[key], f"{key}."):
            yield from _lines(setting, width)
    others = [group for group in choices if group not in sections]
    yield from ("", "Other groups")
    for group in others:
        yield from _wrapped(f"{group}=  {', '.join(_options(group, runner))}", width, "  ")
    yield from ("", "More", *_indented(_MORE.format(groups=", ".join(choices)), width))


def _about(topic: str, runner: str, config: DictConfig, width: int) -> Iterator[str]:
    choices = _choices(config)
    settings = [one for one in _settings(config) if f"{one.key}.".startswith(f"{topic}.")]
    if topic not in choices and not settings:
        known = ", ".join(dict.fromkeys([*choices, *(key for key in map(str, config) if key != "hydra")]))
        raise ConfigError(f"--help {topic}: wanted a group or a setting: {known}.")
    if topic in choices:
        yield f"{topic}=<option>, {choices[topic] or 'null'} unless another is chosen"
        for name, path in _options(topic, runner).items():
            yield from _beside(f"  {name}", _about_option(path), width)
        yield ""
    for setting in settings:
        yield f"{setting.key}={setting.default}"
        yield from _wrapped(setting.meaning, width, "    ")


def _settings(config: DictConfig, prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of a dataclass, including nested ones."""
    for key in map(str, config):
        if not prefix and key in _HIDDEN:
            continue
        if _schema(config, key) is None:
            yield _setting(config, key, prefix)
        else:
            yield from _settings(config[key], f"{prefix}{key}.")


def _setting(config: DictConfig, key: str, prefix: str = "") -> Setting:
    schema = _type(config)
    meaning = meaning_of(schema, key) if schema is not None else ""
    return Setting(f"{prefix}{key}", _value(config, key), as_typed(meaning))


def _value(config: DictConfig, key: str) -> str:
    """Return a value as it would be typed, shortened."""
    if OmegaConf.is_missing(config, key):
        return "<to be given>"
    value = config[key]
    if isinstance(value, ListConfig) and value and OmegaConf.is_config(value[0]):
        return f"<{len(value)} of them>"
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value, resolve=True)
    text = _as_typed_value(value)
    return text if len(text) <= _LONGEST_VALUE or "/" in text else f"{text[: _LONGEST_VALUE - 3]}..."


def _as_typed_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(_as_typed_value, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{_as_typed_value(one)}' for key, one in value.items())}}}"
    return str(value)


def _type(config: DictConfig) -> type | None:
    found = OmegaConf.get_type(config)
    return found if found is not dict else None


def _schema(config: DictConfig, key: str) -> type | None:
    """Return the dataclass of a node; None for a plain value."""
    if OmegaConf.is_missing(config, key) or not OmegaConf.is_dict(config[key]):
        return None
    return _type(config[key])


def _choices(config: DictConfig) -> dict[str, str | None]:
    """Return the groups of this command, with the chosen option of each, in the order of its settings."""
    found = {group: name for group, name in config.hydra.runtime.choices.items() if "hydra/" not in group}
    order = list(map(str, config))
    of_settings = [group for key in order for group in found if group.partition(".")[0] == key]
    return {group: found[group] for group in [*of_settings, *found]}


def _options(group: str, runner: str) -> dict[str, Path]:
    """Return the YAML files of a group, ours and users'; experiments of other runners are left out."""
    folder = group.partition("@")[0]
    paths = [path for root in (CONFIGS, *config_folders()) for path in sorted((root / folder).glob("*.yaml"))]
    if folder == "experiment":
        paths = [path for path in paths if _runner_of(path) in (runner, None)]
    return {path.stem: path for path in paths}


def _note(path: Path) -> dict[str, Any]:
    """Return an experiment file's `note`; empty if it has none."""
    content = yaml.load(path.read_text(encoding="utf-8"), _LOADER)
    return content.get("note", {}) if isinstance(content, dict) else {}


def _runner_of(path: Path) -> str | None:
    """Return the runner of the first command in an experiment's note; None for a file without a note."""
    found = _RUNNER.search(_note(path).get("command", ""))
    return found[1] if found else None


def _about_option(path: Path) -> str:
    """Return a YAML file's note, or the first paragraph of the comment at its head."""
    if says := _note(path).get("says"):
        return str(says)
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("# ") or line == "#", lines)
    head = [line[1:].strip() for line in comment if not line.startswith("# @package")]
    return " ".join(head[: head.index("") if "" in head else None])


def _heading(key: str, config: DictConfig, choices: dict[str, str | None]) -> str:
    chosen = f"={choices[key]}" if choices.get(key) else ""
    about = _first_sentence(" ".join((_schema(config, key).__doc__ or "").split()))
    return f"{key}{chosen}: {about}"


def _first_sentence(text: str) -> str:
    # Do not split after `et al.`: a sentence begins with a capital letter or with a value.
    return re.split(r"(?<=\.) (?=[A-Z`])", text)[0]


def _lines(setting: Setting, width: int) -> Iterator[str]:
    meaning = _in_a_line(_first_sentence(setting.meaning), max(30, width - _INDENT))
    yield from _beside(f"  {setting.key}={setting.default}", meaning, width)


def _in_a_line(sentence: str, width: int) -> str:
    """Return a sentence, or as many of its clauses as fit in a line."""
    if len(sentence) <= width:
        return sentence
    ends = [found.start() for found in re.finditer(r"[,;:]? |[,;:]", sentence[: width - 3])]
    clauses = [found.start() for found in re.finditer(r"[,;:] | \(", sentence[: width - 3])]
    end = clauses[-1] if clauses and clauses[-1] >= width // 2 else ends[-1]
    return f"{sentence[:end]} ..."


def _beside(left: str, right: str, width: int) -> Iterator[str]:
    """Lay out `right` as a column next to `left`, or below it if `left` is too long."""
    lines = textwrap.wrap(right, max(30, width - _INDENT)) or [""]
    if len(left) < _INDENT:
        yield f"{left:{_INDENT}}{lines[0]}".rstrip()
        lines = lines[1:]
    else:
        yield left
    yield from (f"{'':{_INDENT}}{line}" for line in lines if line)


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _indented(text: str, width: int) -> Iterator[str]:
    for line in text.splitlines():
        left, _, right = line.partition("  ")
        yield from _beside(f"  {left}", right.strip(), width)


def meaning_of(schema: type, field: str) -> str:
    """Return a dataclass field's docstring in one line, from the first class of the MRO that has one.

    Empty if there is none, or the source is not available.
    """
    for cls in schema.__mro__:
        if is_dataclass(cls) and (said := _said_in(cls.__module__).get((cls.__qualname__, field))):
            return said
    return ""


@functools.cache
def _said_in(module: str) -> dict[tuple[str, str], str]:
    """Return a dict (class, field) -> docstring of the field, for the classes of a module."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # a notebook's cell, or a package without its source
        return {}
    said = {}
    for cls in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
        for statement, below in zip(cls.body, cls.body[1:], strict=False):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    said[cls.name, name] = " ".join(text.split())
    return said
