"""The commands for records and this machine: inspect, verify, extract, convert, doctor."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from pcr_exp import cli
from pcr_exp.errors import printable
from pcr_exp.places import COMMAND
from pcr_exp.records.fields import FILE_SUFFIXES, RecordFields
from pcr_exp.records.format import VERSION
from pcr_exp.records.index import RecordEntry, RecordIndex
from pcr_exp.records.inspect import (
    ClassNumbers,
    Found,
    find_records,
    find_records_and_faults,
    stored_bytes,
    verify_records,
)
from pcr_exp.records.single import SingleImages, extract_image, find_image
from pcr_exp.system import MIB
from pcr_exp.system.words import counted

_SHOWN_CLASSES = 8
"""Classes listed for each label."""
_SHOWN_FILES = 100
"""Number of skipped files that `convert` lists."""


def inspect(options: argparse.Namespace) -> int:
    """Print the contents of records."""
    for found in find_records(options.root):
        for line in _described(found, options.samples):
            print(printable(line))
    return 0


def _described(found: Found, num_shown: int) -> Iterator[str]:
    index, numbers = found.records.index, found.numbers
    records = [index.records[number] for number in numbers]
    num_samples = sum(record.num_samples for record in records)
    yield f"{found.records.folder or found.records.storage}: {index.dataset}/{index.split}, {index.encoding}"
    yield f"  format version {VERSION}, scans {index.scans}, images {index.images}"
    yield f"  {counted(num_samples, 'image')} in {counted(len(records), 'record')}"
    for label, classes in index.classes.items():
        yield f"  label {label}: {_classes(classes)}"
    yield from _groups(index, list(numbers), num_samples)
    for number, name in enumerate(sorted(index.fields)):
        yield _field(records, number, f"{name} ({index.fields[name]})", num_samples)
    if len(records) == 1:
        yield from _samples(found, num_shown)


def _classes(classes: Sequence[str]) -> str:
    names, what = classes, "classes"
    if isinstance(classes, ClassNumbers):
        names, what = [str(number) for number in classes.used], "class numbers, whose names are in an index"
    shown = ", ".join(names[:_SHOWN_CLASSES]) + (", ..." if len(names) > _SHOWN_CLASSES else "")
    return f"{len(names)} {what} ({shown})"


def _groups(index: RecordIndex, numbers: list[int], num_samples: int) -> Iterator[str]:
    ends = [
        sum(index.prefix_bytes(number, group) for number in numbers)
        for group in range(1, index.num_groups + 1)
    ]
    yield "  group       MiB  kB/image   share"
    for group, end in enumerate(ends, start=1):
        mean = end / max(1, num_samples) / 1e3
        yield f"  {group:5}{end / MIB:10.2f}{mean:10.2f}{end / max(1, ends[-1]):8.1%}"


def _field(records: Sequence[RecordEntry], number: int, name: str, num_samples: int) -> str:
    """Describe the size of a field, the `number`-th by name."""
    ends = [(entry.fields.header_bytes, *entry.fields.group_ends) for entry in records if entry.fields]
    num_bytes = sum(of_record[number + 1] - of_record[number] for of_record in ends)
    return f"  field {name}: {num_bytes / MIB:.2f} MiB, {num_bytes / max(1, num_samples) / 1e3:.2f} kB/image"


def _samples(found: Found, num_shown: int) -> Iterator[str]:
    number = found.numbers[0]
    prefix = found.records.read_prefix(number, found.records.index.num_groups)
    for i in range(min(num_shown, len(prefix))):
        labels = ", ".join(f"{name}={int(values[i])}" for name, values in prefix.labels.items())
        sizes = " ".join(str(len(prefix.piece(i, g))) for g in range(1, prefix.group + 1))
        yield f"  {i:5}  {prefix.ids[i]}  {labels}  bytes per group: {sizes}"
    if len(prefix) > num_shown:
        yield f"  ... {len(prefix) - num_shown} more images (--samples {len(prefix)})"


def verify(options: argparse.Namespace) -> int:
    """Read every byte and print what is damaged, missing or superfluous. Return 1 if anything is."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    every, faults = find_records_and_faults(options.root)
    total = sum(stored_bytes(found.records.index, number) for found in every for number in found.numbers)
    damaged: set[str] = set()
    num_there = sum(len(found.numbers) for found in every)
    num_records = num_there + sum(fault.num_records for fault in faults)
    for fault in faults:
        print(printable(f"{fault.what}: {fault.path}: {fault.reason}"))
    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("verify", total=total)
        for found in every:
            for damage in verify_records(
                found.records,
                found.numbers,
                num_threads=options.threads,
                done=lambda num_bytes: bar.advance(task, num_bytes),
            ):
                damaged.add(str(PurePath(damage.record).with_suffix("")))
                print(printable(f"damaged: {damage.record}: {damage.reason}"))
                for name, where in damage.images:
                    part = f"group {where}" if isinstance(where, int) else f"field {where}"
                    print(printable(f"damaged: {damage.record}: image {name}, {part}"))
    folders = ", ".join(str(found.records.folder or found.records.storage) for found in every)
    whole = f"{num_there - len(damaged)} of {counted(num_records, 'record', 'are')} whole"
    print(f"{whole} ({total / MIB:.1f} MiB)" + (f" in {printable(folders)}" if folders else ""))
    return 1 if damaged or faults else 0


def extract(options: argparse.Namespace) -> int:
    """Write an image at a scan group, or one of its fields, to a file or to standard output."""
    every = find_records(options.root)
    splits = [found for found in every if found.records.index.encoding == every[0].records.index.encoding]
    records, record, i = find_image([(found.records, found.numbers) for found in splits], options.image)
    group = options.group or records.index.num_groups
    if options.field:
        fields = RecordFields(records, [options.field])
        encoded = bytes(fields.read_several(record, [i])[0][options.field])
        said = f"field {options.field}"
        suffix = f"-{options.field}{FILE_SUFFIXES[fields.kinds[options.field]]}"
    else:
        encoded = extract_image(records, record, i, group, pieces_only=options.pieces)
        said, suffix = f"scan group {group}", f"-group{group}.jpg"
    if options.output == "-":
        sys.stdout.buffer.write(encoded)
        return 0
    name = SingleImages(records).header(record).ids[i]
    path = Path(options.output or f"{printable(Path(name).stem)}{suffix}")
    try:
        with path.open("wb" if options.force else "xb") as file:
            file.write(encoded)
    except FileExistsError:
        refusal = f"{path} already exists: choose another name (-o), or replace it (--force)."
        print(printable(refusal), file=sys.stderr)
        return 1
    print(printable(f"{path}: image {name}, {said}, {len(encoded)} bytes"))
    return 0


def convert(options: argparse.Namespace) -> int:
    """Convert PNG and WebP files to JPEG and print the loss. Return 1 if a file could not be converted."""
    from rich.console import Console
    from rich.progress import Progress

    from pcr_exp.images.convert import CONVERTED_FILE, convert_folder, passed_over

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("convert", total=None)
        outcomes = convert_folder(
            Path(options.root),
            Path(options.target),
            quality=options.quality,
            num_threads=options.threads,
            done=lambda done, total: bar.update(task, completed=done, total=total),
        )
    made = [outcome for outcome in outcomes if not outcome.error]
    if made:
        losses = sorted(outcome.psnr_db for outcome in made)
        share = sum(outcome.bytes_after for outcome in made) / sum(outcome.bytes_before for outcome in made)
        print(
            f"{counted(len(made), 'image')} converted to JPEG of quality {options.quality}, with "
            f"{share:.0%} of the bytes. The conversion is lossy: PSNR {losses[0]:.1f} dB at the lowest, "
            f"{losses[len(losses) // 2]:.1f} in the median; the value of each image is in "
            f"{Path(options.target) / CONVERTED_FILE}."
        )
    for what in sorted({outcome.left_out for outcome in made} - {""}):
        print(f"{counted(sum(outcome.left_out == what for outcome in made), 'image')} lost: {what}")
    for outcome in outcomes:
        if outcome.error:
            print(printable(f"not converted: {outcome.file}: {outcome.error}"))
    left = passed_over(Path(options.root))
    for name in left[:_SHOWN_FILES]:
        print(printable(f"skipped: {name}: not a .jpg, .jpeg, .png or .webp file"))
    if len(left) > _SHOWN_FILES:
        print(f"skipped: {counted(len(left) - _SHOWN_FILES, 'more file')} of other kinds")
    return 1 if len(made) < len(outcomes) else 0


def doctor(options: argparse.Namespace) -> int:
    """Print findings and remedies. Return 1 if something required is missing."""
    from pcr_exp.measuring.doctor import examine

    is_missing = False
    for finding in examine(Path(options.folder)):
        mark = "ok" if not finding.remedy else "MISSING" if finding.needed else "note"
        print(f"{mark:8}{finding.what:28}{finding.found}")
        if finding.remedy:
            print(f"{'':8}{'':28}-> {finding.remedy}")
        is_missing = is_missing or mark == "MISSING"
    return 1 if is_missing else 0


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of this module's commands; its result holds the command's function as `run`."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=cli.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    where = "a record (.pcr), or the folder or address of a split's or a dataset's records"

    def command(name: str, run: object) -> argparse.ArgumentParser:
        about = cli.TOOLS[name]
        added = commands.add_parser(name, help=about, description=about)
        added.set_defaults(run=run)
        return added

    added = command("inspect", inspect)
    added.add_argument("root", help=where)
    added.add_argument("--samples", type=int, default=10, help="number of images listed for a single record")
    added = command("verify", verify)
    added.add_argument("root", help=where)
    added.add_argument("--threads", type=_positive, default=4, help="records read at a time")
    added = command("extract", extract)
    added.add_argument("root", help=where)
    added.add_argument("image", help="number of the image, from 0, or its id")
    added.add_argument("--group", type=_positive, help="scan group (default: all groups)")
    added.add_argument("--field", help="write a field, such as mask, instead of the image")
    added.add_argument("-o", "--output", help="file, or - for standard output")
    added.add_argument("--pieces", action="store_true", help="the bytes as stored, without an end marker")
    added.add_argument("--force", action="store_true", help="replace the file if it exists")
    added = command("convert", convert)
    added.add_argument("root", help="folder of images; it is not changed")
    added.add_argument("target", help="new folder, for the JPEG files and converted.csv")
    added.add_argument("--quality", type=int, choices=range(1, 101), metavar="1..100", default=95)
    added.add_argument("--threads", type=_positive, default=4, help="images at a time")
    added = command("doctor", doctor)
    added.add_argument("folder", nargs="?", default=".", help="folder whose disk is measured")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: wanted 1 or more")
    return int(text)
