"""The harness of benchmarks: arguments, cases by turns, rows on disk, and the table that follows from them.

    def rows(given: Namespace) -> Iterator[Row]: ...

    main = Study(__doc__, "outputs/throughput/decoder.csv", rows, repeats=9)
    main.add("--num-images", type=int, default=200)

    if __name__ == "__main__":
        main()

Columns left of `repeat` name the case; those right of it were measured.
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
"""Beside the page of a folder: every case of its CSV files."""
Row = dict[str, Any]
Name = TypeVar("Name")


class Study:
    """A program that measures: a command line with `--out`, `--repeats`, `--images` and what it adds."""

    def __init__(
        self,
        doc: str | None,
        out: str,
        rows: Callable[[argparse.Namespace], Iterable[Row] | None],
        *,
        repeats: int | None = 5,
        images: bool = True,
    ) -> None:
        """Take the arguments that all have.

        Args:
            doc: Of the program.
            out: The default of `--out`: a CSV file that rows are kept in, or a folder.
            rows: Measures, given the arguments; None if it has kept its rows itself.
            repeats: The default of `--repeats`; None: nothing is repeated.
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
        """Take an argument, as argparse does."""
        self._parser.add_argument(*flags, **how)

    def __call__(self, arguments: Sequence[str] | None = None) -> None:
        """Measure, print the table, keep its rows; `--out` may be a folder where a file is the default."""
        given = self._parser.parse_args(arguments)
        if self._default.suffix and not given.out.suffix:
            given.out /= self._default.name
        rows = self._rows(given)
        if rows is not None:
            save_rows(list(rows), given.out)


def in_turns(cases: Iterable[tuple[Row, Callable[[], Row]]], repeats: int) -> Iterator[Row]:
    """A row of each case in each repeat, A B C A B C ...: other work on the machine changes its speed.

    Args:
        cases: What names each, and what measures it.
        repeats: Of each case.
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
    """Seconds of all items by case, once per repeat; at every item each case has its turn.

    Who is first reads the item into the processor's cache: it is another case from item to item. A round
    before the first repeat warms.

    Args:
        cases: By name, what does a thing to the item of this number.
        num_items: Of each repeat.
        repeats: That are measured.
        clock: Of this thread's CPU time, or another.
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
    """Let this process compute with one thread, and keep memory, as decoding workers do."""
    import cv2
    import torch

    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    keep_freed_memory()


def seconds(work: Callable[[], object]) -> float:
    """Seconds of the clock that something takes."""
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def save_rows(rows: Sequence[Row], path: Path) -> None:
    """Append to a CSV, in place of earlier rows of the same cases; prints the table of these."""
    frame = pd.DataFrame(rows)
    print(to_markdown(frame))
    if path.exists():
        earlier, case = pd.read_csv(path), case_columns(frame)
        frame = pd.concat([earlier[~_lines(earlier[case]).isin(_lines(frame[case]))], frame])
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False, float_format="%.6g")


def _lines(cases: pd.DataFrame) -> pd.Series:
    """Each case as a file has it, with its digits."""
    text = cases.to_csv(index=False, header=False, float_format="%.6g")
    return pd.Series(text.splitlines(), index=cases.index)


def add_missing(
    cases: Iterable[tuple[Row, Callable[[], Iterable[Row] | pd.DataFrame]]],
    path: Path,
    table: Callable[[pd.DataFrame], str],
) -> None:
    """Measure the cases that a CSV has no rows of, print the table of each, and add its rows.

    Args:
        cases: The columns that name each, with their values, and what measures its rows.
        path: The CSV.
        table: Of some rows.
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
    """What names a case."""
    columns = list(frame.columns)
    return columns[: columns.index("repeat")]


def to_markdown(frame: pd.DataFrame) -> str:
    """One line per case, in the order of the rows: n, then median (smallest to largest) of each measure."""
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
    """The content of TABLES_FILE: a section per CSV file.

    Args:
        folder: Has the files.
        titles: By the name of each file, without its ending.
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
    """So many of the folder's images, over and over if there are fewer; each is a class of its own.

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
    """The folder that holds both encodings of these samples; what is there already is not made again."""
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
