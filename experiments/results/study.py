"""Benchmark harness: arguments, interleaved cases, rows on disk, and the tables made from them.

    def rows(given: Namespace) -> Iterator[Row]: ...

    main = Study(__doc__, "outputs/throughput/decoder.csv", rows, repeats=9)
    main.add("--num-images", type=int, default=200)

    if __name__ == "__main__":
        main()

Columns left of `repeat` identify the case; those right of it were measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import DatasetError
from pcr_exp.records.encode import encode_split
from pcr_exp.system.process import keep_freed_memory

IMAGES = Path("../shared/data/imagenet_native_sample")
RECORDS = Path("data/benchmarks")
TABLES_FILE = "tables.md"
"""Page of a results folder, next to its README.md, with every case of its CSV files."""
Row = dict[str, Any]
Name = TypeVar("Name")


class Study:
    """A measuring program: a command line with `--out`, `--repeats`, `--images` and its own arguments."""

    def __init__(
        self,
        doc: str | None,
        out: str,
        rows: Callable[[argparse.Namespace], Iterable[Row] | None],
        *,
        repeats: int | None = 5,
        images: bool = True,
    ) -> None:
        """Add the arguments that studies share.

        Args:
            doc: Docstring of the program, shown by `--help`.
            out: Default of `--out`: a CSV file for the rows, or a folder.
            rows: Measures, given the arguments, and returns the rows; None if it saved them itself.
            repeats: Default of `--repeats`; None: nothing is repeated.
            images: Whether it measures images.
        """
        self._parser = argparse.ArgumentParser(
            description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self._rows, self._default = rows, Path(out)
        if images:
            self.add("--images", type=Path, default=IMAGES, help="a folder of .JPEG files")
        if repeats is not None:
            self.add("--repeats", type=int, default=repeats, help="measurements of each case (%(default)s)")
        self.add("--out", type=Path, default=self._default, help="where rows are kept (%(default)s)")

    def add(self, *flags: str, **how: Any) -> None:
        """Add an argument, as argparse does."""
        self._parser.add_argument(*flags, **how)

    def __call__(self, arguments: Sequence[str] | None = None) -> None:
        """Measure, print the table and save the rows; `--out` may be a folder if the default is a file."""
        given = self._parser.parse_args(arguments)
        if self._default.suffix and not given.out.suffix:
            given.out /= self._default.name
        rows = self._rows(given)
        if rows is not None:
            save_rows(list(rows), given.out)


def in_turns(cases: Iterable[tuple[Row, Callable[[], Row]]], repeats: int) -> Iterator[Row]:
    """Yield a row per case and repeat, interleaved (A B C A B C ...), since other work may change the speed.

    Args:
        cases: The columns that identify each case, and the function that measures it.
        repeats: Measurements of each case.
    """
    cases = list(cases)
    for repeat in range(repeats):
        for case, measure in cases:
            yield {**case, "repeat": repeat, **measure()}


def by_turns(
    cases: Mapping[Name, Callable[[int], object]],
    num_items: int,
    repeats: int,
    clock: Callable[[], float] = time.thread_time,
) -> Iterator[dict[Name, float]]:
    """Yield the seconds of all items by case, once per repeat, with the cases interleaved at every item.

    The first case at an item reads it into the CPU cache, so the first case changes from item to item.
    A round before the first repeat warms up.

    Args:
        cases: Functions by name, called with the number of an item.
        num_items: Items per repeat.
        repeats: Measured repeats.
        clock: Returns seconds; by default, the CPU time of this thread.
    """
    order = list(cases)
    for repeat in range(-1, repeats):
        spent_s = dict.fromkeys(order, 0.0)
        for item in range(num_items):
            first = (item + max(repeat, 0)) % len(order)
            for name in [*order[first:], *order[:first]]:
                started_s = clock()
                cases[name](item)
                spent_s[name] += clock() - started_s
        if repeat >= 0:
            yield spent_s


def one_core() -> None:
    """Limit this process to one thread and keep freed memory, as decoding workers do."""
    import cv2
    import torch

    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    keep_freed_memory()


def seconds(work: Callable[[], object]) -> float:
    """Return the wall-clock seconds that `work` takes."""
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def save_rows(rows: Sequence[Row], path: Path) -> None:
    """Append rows to a CSV, replacing earlier rows of the same cases, and print their table."""
    frame = pd.DataFrame(rows)
    print(to_markdown(frame))
    if path.exists():
        earlier, case = pd.read_csv(path), case_columns(frame)
        frame = pd.concat([earlier[~_lines(earlier[case]).isin(_lines(frame[case]))], frame])
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False, float_format="%.6g")


def _lines(cases: pd.DataFrame) -> pd.Series:
    """Return each case as a line of the CSV, with the digits of the file."""
    text = cases.to_csv(index=False, header=False, float_format="%.6g")
    return pd.Series(text.splitlines(), index=cases.index)


def add_missing(
    cases: Iterable[tuple[Row, Callable[[], Iterable[Row] | pd.DataFrame]]],
    path: Path,
    table: Callable[[pd.DataFrame], str],
) -> None:
    """Measure the cases that have no rows in a CSV, print the table of each, and add its rows.

    Args:
        cases: The columns and values that identify each case, and the function that measures its rows.
        path: The CSV.
        table: Formats rows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.read_csv(path) if path.exists() else pd.DataFrame()
    for case, measure in cases:
        if len(frame) and (frame[list(case)] == pd.Series(case)).all(axis=1).any():
            continue
        measured = pd.DataFrame(measure())
        print(table(measured), flush=True)
        frame = pd.concat([frame, measured]) if len(frame) else measured
        frame.to_csv(path, index=False, float_format="%.6g")


def case_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns that identify a case."""
    columns = list(frame.columns)
    return columns[: columns.index("repeat")]


def to_markdown(frame: pd.DataFrame) -> str:
    """Format a line per case, in the order of the rows: n, then median (smallest to largest) per measure."""
    case = case_columns(frame)
    measures = [name for name in frame.columns if name not in case and name != "repeat"]
    lines = [f"| {' | '.join([*case, 'n', *measures])} |", "|" + " ---: |" * (len(case) + 1 + len(measures))]
    for _, rows in frame.groupby(case, sort=False, dropna=False):
        first = [_show(rows[name].iloc[0]) for name in case]
        lines.append(
            f"| {' | '.join([*first, str(len(rows)), *(_spread(rows[name]) for name in measures)])} |"
        )
    return "\n".join(lines)


def tables_page(folder: Path, titles: Mapping[str, str]) -> str:
    """Return the content of TABLES_FILE: a section per CSV file.

    Args:
        folder: Folder of the CSV files.
        titles: Section titles, by file name without its extension.
    """
    parts = [
        f"# Every case of results/{folder.name}",
        "Columns left of `n` name the case. Those right of it were measured: median (smallest to largest).",
    ]
    for name, title in titles.items():
        rows = pd.read_csv(folder / f"{name}.csv")
        parts += [f"## {title}", f"Rows: [{name}.csv]({name}.csv).", to_markdown(rows)]
    return "\n\n".join(parts) + "\n"


def _spread(values: pd.Series) -> str:
    median, low, high = (_show(value) for value in (values.median(), values.min(), values.max()))
    return median if low == high else f"{median} ({low} to {high})"


def _show(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def native_samples(count: int, images: Path = IMAGES) -> list[Sample]:
    """Return `count` of the folder's images, repeated if there are fewer. Each image is its own class.

    Raises:
        DatasetError: the folder holds no .JPEG file.
    """
    paths = sorted(images.rglob("*.JPEG"))
    if not paths:
        raise DatasetError(f"{images}: holds no .JPEG file. Name a folder of images with --images")
    every = (
        Sample(f"{copy}/{p.name}", p, {"number": i}) for copy in range(count) for i, p in enumerate(paths)
    )
    return list(islice(every, count))


def native_records(
    count: int,
    images_per_record: int,
    folder: Path | None = None,
    *,
    images: Path = IMAGES,
    num_workers: int = 2,
) -> Path:
    """Encode these samples and return the folder of both encodings. Existing records are reused."""
    samples = native_samples(count, images)
    num_classes = 1 + max(sample.labels["number"] for sample in samples)
    folder = folder or RECORDS / f"native-{count}-{images_per_record}"
    encode_split(
        samples,
        {"number": [str(i) for i in range(num_classes)]},
        folder,
        dataset="imagenet_native",
        split="train",
        images_per_record=images_per_record,
        num_workers=num_workers,
    )
    return folder
