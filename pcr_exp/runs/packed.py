"""A packed set: many finished runs in three files, `runs.json.gz`, `rows.csv.gz` and `predictions.npz`.

`runs.json.gz` has the manifest and configuration of every run by run id, one line per run. `rows.csv.gz` has
the rows of all runs in the order in which they were written. pandas reads both, and `zcat` shows them. A cell
of the rows holds a word as it is and everything else as JSON, so integers stay integers and floats are exact
to the last bit. `null` is a value that could not be measured; an empty cell is a column that the row does not
have.
`predictions.npz` has the models' predictions for every image; see `pcr_exp.runs.predictions`.

    python -m pcr_exp.runs.packed outputs/runs results/my_runs         # packs the finished runs of a folder
    python -m pcr_exp.runs.packed outputs/runs results/my_runs --add   # and keeps those packed there

Runs contain folder names of the machine that they ran on; `--rename /mnt/disk7=..` replaces them.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pcr_exp.errors import RunError
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.manifest import Manifest, manifest_of, read_manifest
from pcr_exp.runs.predictions import PREDICTIONS_FILE, predictions_below, write_predictions
from pcr_exp.runs.rows import Row, append_checked, read_rows
from pcr_exp.system.atomic import make_folder, write_atomic
from pcr_exp.system.columns import Column
from pcr_exp.training.columns import COLUMNS, with_declared

RUNS_FILE, ROWS_FILE = "runs.json.gz", "rows.csv.gz"
_PLAIN_RUNS_FILE = "runs.json"
"""The same, not compressed, in sets of 0.2.0."""


@dataclass(frozen=True, slots=True)
class PackedRun:
    """A finished run from a packed set."""

    manifest: Manifest
    config: dict[str, Any]
    rows: list[Row]
    """Validated rows."""


def is_packed(folder: Path) -> bool:
    """Return whether a folder holds a packed set."""
    return any((folder / name).exists() for name in (RUNS_FILE, _PLAIN_RUNS_FILE))


@dataclass(frozen=True, slots=True)
class _Raw:
    """A run exactly as in the files, so that rewriting them with more runs changes no other line."""

    entry: dict[str, Any]
    """`manifest` and `config`."""
    rows: list[Row]
    manifest: Manifest = field(compare=False)


def pack_runs(
    runs_root: Path, out: Path, *, add: bool = False, renamed: Mapping[str, str] | None = None
) -> list[str]:
    """Pack all finished runs in the folders of `runs_root`; nothing there is changed or deleted.

    Only the manifest, configuration, rows and predictions of a run are packed, not its other files (log,
    checkpoint, figures). Unfinished runs are left out.

    Args:
        runs_root: A folder of run directories, of a packed set, or of both.
        out: Folder for the files. A packed set already there is replaced, unless `add` is set.
        add: Keep the runs that are packed in `out`, and add these.
        renamed: Replacements by text in a run's configuration or manifest, such as a folder.

    Returns:
        The ids of all runs in the new set, sorted.

    Raises:
        RunError: there is no finished run, one is damaged, or the existing set is damaged or has another run
            of the same id.
        StorageError: the disk is full or cannot be written.
    """
    found = {run_id: _renamed(raw, renamed or {}) for run_id, raw in _finished(runs_root).items()}
    if not found:
        raise RunError(f"{runs_root} holds no finished run: wanted a folder of run directories to pack.")
    adds = add and is_packed(out)
    packed = _together(_read_raw(out), found, out) if adds else found
    predictions = (predictions_below(out) if adds else {}) | predictions_below(runs_root)
    declared = {column.name: column for run in packed.values() for column in run.manifest.columns}
    ids = sorted(packed)
    make_folder(out)
    table = rows_to_csv({run_id: packed[run_id].rows for run_id in ids}, with_declared([*declared.values()]))
    entries = {run_id: packed[run_id].entry for run_id in ids}
    write_atomic(out / ROWS_FILE, [_compressed(table)])
    if kept := {run_id: predictions[run_id] for run_id in ids if run_id in predictions}:
        write_predictions(out / PREDICTIONS_FILE, kept)
    else:
        (out / PREDICTIONS_FILE).unlink(missing_ok=True)  # left by the set that this one replaces
    lines = [
        f"{json.dumps(run_id)}: {json.dumps(entry, separators=(',', ':'), allow_nan=False)}"
        for run_id, entry in entries.items()
    ]
    write_atomic(out / RUNS_FILE, [_compressed("{\n" + ",\n".join(lines) + "\n}\n")])
    (out / _PLAIN_RUNS_FILE).unlink(missing_ok=True)  # of the set that this one replaces
    return ids


def _compressed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)  # equal runs give equal bytes


def _text(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def _finished(runs_root: Path) -> dict[str, _Raw]:
    """Return the finished runs in a folder by id, from run directories and from a packed set."""
    found = {}
    folders = sorted(path for path in runs_root.iterdir() if path.is_dir()) if runs_root.is_dir() else []
    for directory in map(RunDirectory, folders):
        if not directory.config_path.exists() or directory.status != "finished":
            continue
        manifest = read_manifest(directory.manifest_path)
        read_rows(directory.rows_path, with_declared(manifest.columns))  # rejects damaged rows
        rows = [json.loads(line) for line in directory.rows_path.read_text().splitlines()]
        entry = {"manifest": json.loads(directory.manifest_path.read_text()), "config": directory.config()}
        found[directory.path.name] = _Raw(entry, rows, manifest)
    return _together(_read_raw(runs_root), found, runs_root) if is_packed(runs_root) else found


def _renamed(raw: _Raw, renamed: Mapping[str, str]) -> _Raw:
    text = json.dumps(raw.entry)
    for old, new in renamed.items():
        text = text.replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1])
    entry = json.loads(text)
    entry["manifest"]["run_id"] = raw.manifest.run_id  # it is not a path
    return replace(raw, entry=entry)


def _together(one: Mapping[str, _Raw], other: Mapping[str, _Raw], where: Path) -> dict[str, _Raw]:
    """Merge two sets; a run that is in both must be identical."""
    for run_id in one.keys() & other.keys():
        if one[run_id] != other[run_id]:
            raise RunError(
                f"{where} already contains a different {run_id}, so this one is not added. Pack the runs "
                "without it, or, to replace the set, pack all of its runs into a new folder."
            )
    return {**one, **other}


def read_packed(folder: Path) -> list[PackedRun]:
    """Read and validate all runs of a packed set, in the order of their ids.

    Raises:
        RunError: a file is missing or damaged, a manifest or a row is invalid, or a row belongs to a run that
            is not in `runs.json.gz`; the message names the file.
    """
    runs = []
    for run_id, raw in sorted(_read_raw(folder).items()):
        columns = with_declared(raw.manifest.columns)
        rows = _checked(raw.rows, columns, f"{folder / ROWS_FILE}, {run_id}")
        runs.append(PackedRun(raw.manifest, raw.entry["config"], rows))
    return runs


def _read_raw(folder: Path) -> dict[str, _Raw]:
    is_plain = (folder / _PLAIN_RUNS_FILE).exists() and not (folder / RUNS_FILE).exists()
    runs_path, rows_path = folder / (_PLAIN_RUNS_FILE if is_plain else RUNS_FILE), folder / ROWS_FILE
    try:
        runs = json.loads(_text(runs_path))
        entries = {
            run_id: {"manifest": run["manifest"], "config": run["config"]} for run_id, run in runs.items()
        }
        text = _text(rows_path)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{folder} is not a packed set of runs: {type(error).__name__}: {error}. Wanted {RUNS_FILE} and "
            f"{ROWS_FILE}; fetch both again."
        ) from error
    manifests = {
        run_id: manifest_of(entry["manifest"], f"{runs_path}, {run_id}") for run_id, entry in entries.items()
    }
    columns = {run_id: with_declared(manifest.columns) for run_id, manifest in manifests.items()}
    try:
        rows = rows_from_csv(text, columns)
    except RunError as error:
        raise RunError(f"{rows_path}, {error}") from error
    return {run_id: _Raw(entry, rows[run_id], manifests[run_id]) for run_id, entry in entries.items()}


def _checked(written: Sequence[Row], columns: Sequence[Column], where: str) -> list[Row]:
    rows: list[Row] = []
    for number, row in enumerate(written, start=1):
        try:
            append_checked(rows, row, columns)
        except RunError as error:
            raise RunError(f"{where}, row {number}: {error}") from error
    return rows


def rows_to_csv(rows: Mapping[str, Sequence[Row]], columns: Sequence[Column] = COLUMNS) -> str:
    """Return the rows of several runs as one CSV table; `rows_from_csv` returns equal rows.

    Args:
        rows: Rows by run id.
        columns: All columns that rows may have, except a task's metrics. Those that no row has are left out.

    Raises:
        ValueError: a number is not finite.
    """
    words = _words(columns)
    there = {name for written in rows.values() for row in written for name in row}
    known = ["kind", *(column.name for column in columns if column.name in there)]
    names = [*known, *sorted(there - set(known))]  # the others are the task's metrics
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run_id", *names])
    for run_id, written in rows.items():
        for row in written:
            cells = {
                name: value if name in words else json.dumps(value, allow_nan=False)
                for name, value in row.items()
            }
            writer.writerow([run_id, *(cells.get(name, "") for name in names)])
    return text.getvalue()


def rows_from_csv(text: str, columns: Mapping[str, Sequence[Column]]) -> dict[str, list[Row]]:
    """Return the rows of each run, as they were written.

    Args:
        text: Table from `rows_to_csv`.
        columns: By run id, all columns that its rows may have.

    Raises:
        RunError: a line is damaged, or its run is not in `columns`; the message names the line.
    """
    words = {run_id: _words(table) for run_id, table in columns.items()}
    reader = csv.reader(io.StringIO(text, newline=""))
    _, *names = next(reader, [""])
    rows: dict[str, list[Row]] = {run_id: [] for run_id in columns}
    for cells in reader:
        try:
            run_id, *values = cells
            row = {
                name: value if name in words[run_id] else json.loads(value)
                for name, value in zip(names, values, strict=True)
                if value
            }
            rows[run_id].append(row)
        except KeyError as error:
            raise RunError(f"line {reader.line_num}: run {run_id} is not in {RUNS_FILE}.") from error
        except ValueError as error:
            raise RunError(f"line {reader.line_num} is damaged: {error}.") from error
    return rows


def _words(columns: Sequence[Column]) -> set[str]:
    return {"kind"} | {column.name for column in columns if column.kind == "word"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Pack the finished runs of a folder, as given on the command line.

    Raises:
        RunError, StorageError: as `pack_runs` does.
    """
    parser = argparse.ArgumentParser(description="Pack the finished runs of a folder into a few files.")
    parser.add_argument(
        "runs_root", type=Path, help="folder of run directories, or of a packed set; nothing in it is changed"
    )
    parser.add_argument("out", type=Path, help=f"folder for {RUNS_FILE} and {ROWS_FILE}")
    parser.add_argument("--add", action="store_true", help="keep the runs that are packed in OUT already")
    parser.add_argument(
        "--rename",
        metavar="OLD=NEW",
        action="append",
        default=[],
        help="replace OLD, such as a folder of this machine, by NEW; can be repeated",
    )
    given = parser.parse_args(arguments)
    unclear = [one for one in given.rename if not one.partition("=")[0] or "=" not in one]
    if unclear:
        parser.error(f"--rename {unclear[0]}: wanted OLD=NEW, such as /mnt/disk7/records=data/records")
    renamed = dict(one.split("=", 1) for one in given.rename)
    packed = pack_runs(given.runs_root, given.out, add=given.add, renamed=renamed)
    print(f"{len(packed)} runs in {given.out / RUNS_FILE} and {given.out / ROWS_FILE}")


if __name__ == "__main__":
    main()
