"""Draw every committed figure again, from committed files alone: `make figures`.

    python -m experiments.redraw                          # all of results/, in place
    python -m experiments.redraw results/quality          # what lies below a folder

A folder of results keeps the figures that it has; tables that are no figure's are left as they are.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from pcr_exp.analysis.activations.page import FIGURES as STUDY_FIGURES
from pcr_exp.analysis.activations.page import META_FILE as STUDY
from pcr_exp.analysis.activations.page import save_study_figure
from pcr_exp.analysis.cached_reads import redraw_cached_reads
from pcr_exp.analysis.core.figure import only_figures
from pcr_exp.analysis.evaluation.page import META_FILE as EVALUATION
from pcr_exp.analysis.evaluation.page import draw_evaluation
from pcr_exp.analysis.model.plan_page import PREDICTIONS_FILE, report_plan
from pcr_exp.analysis.model.scale import SIMULATED, redraw_scale
from pcr_exp.analysis.model.validation import META_FILE as VALIDATION
from pcr_exp.analysis.model.validation_page import report_validation
from pcr_exp.analysis.quality.files import ROWS_FILE as QUALITY
from pcr_exp.analysis.quality.files import load_quality
from pcr_exp.analysis.quality.one_image import NAME as SAMPLE_IMAGE
from pcr_exp.analysis.quality.one_image import write_sample_image
from pcr_exp.analysis.quality.overview import NAME as OVERVIEW
from pcr_exp.analysis.quality.page import save_decode_modes, save_overview, save_quality_figures
from pcr_exp.analysis.report import write_report
from pcr_exp.analysis.scan_scripts import SEARCH_FILE as SCRIPTS
from pcr_exp.analysis.scan_scripts import draw_folder as draw_scripts
from pcr_exp.analysis.scans.projected_page import write_projected
from pcr_exp.analysis.speed import redraw_codec, redraw_encode, redraw_throttle
from pcr_exp.analysis.throughput.page import PAGE_FILE as THROUGHPUT
from pcr_exp.analysis.throughput.page import report_throughput
from pcr_exp.analysis.tolerance.page import META_FILE as TOLERANCE
from pcr_exp.analysis.tolerance.page import load_tolerance, write_tables
from pcr_exp.analysis.tolerance.slopes import measured_in, write_slopes
from pcr_exp.config.compose import compose
from pcr_exp.config.runners import FiguresConfig
from pcr_exp.errors import RunError
from pcr_exp.places import CHECKOUT, as_typed
from pcr_exp.runners.figures import compare
from pcr_exp.runs.packed import RUNS_FILE

RESULTS = (CHECKOUT or Path()) / "results"
TIMED = "timed"
"""Folder of short exclusive runs, whose seconds are joined with what runs of results/finetuning learned."""
USERS_OWN = ("runs", "demo", "figures")
"""Folders of results/ that git does not have."""
_FIGURE = (".pdf", ".png", ".csv")

Draw = Callable[[Path, Path], object]
"""Draws what a folder (its first argument) allows into another (its second)."""


@dataclass(frozen=True, slots=True)
class Job:
    """The figures of one folder of results."""

    folder: Path
    draw: Draw


def jobs(results: Path = RESULTS) -> list[Job]:
    """All of them, by folder: which files lie there tells what is drawn."""
    makers: list[tuple[str, Draw]] = [
        (f"runs/{RUNS_FILE}", _draw_runs),
        (f"{TIMED}/{RUNS_FILE}", _draw_projected),
        (QUALITY, _draw_quality),
        ("decode_modes.csv", _draw_modes),
        (EVALUATION, _in_a_copy(draw_evaluation)),
        (TOLERANCE, lambda folder, out: write_tables(out, load_tolerance(folder))),
        ("slopes.csv", lambda folder, out: write_slopes(measured_in(folder), out)),
        (THROUGHPUT, _in_a_copy(report_throughput, needs="loaders.png")),
        (VALIDATION, _in_a_copy(_draw_validation)),
        (PREDICTIONS_FILE, _draw_plan),
        (STUDY, _draw_activations),
        (f"{SAMPLE_IMAGE}.csv", _draw_sample_image),
        (f"{OVERVIEW}.csv", _draw_overview),
        ("head_reads.csv", redraw_throttle),
        ("cached_reads.csv", redraw_cached_reads),
        ("codec.csv", redraw_codec),
        ("encode.csv", redraw_encode),
        (SCRIPTS, draw_scripts),
        (f"{SIMULATED}.csv", redraw_scale),
    ]
    found = [
        Job(path.parent.parent if "/" in name else path.parent, draw)
        for name, draw in makers
        for path in sorted(results.rglob(name))
        if path.relative_to(results).parts[0] not in USERS_OWN
    ]
    return sorted(found, key=lambda job: str(job.folder))


def redraw(found: Iterable[Job], *, into: Path | None = None) -> Iterator[Path]:
    """Draw each folder's figures; yields the PNG of each as it is there.

    Args:
        found: What to draw.
        into: Put all figures, also those that are not committed, below this folder instead.
    """
    for job in found:
        with tempfile.TemporaryDirectory() as drawn:
            out = Path(drawn)
            committed = {path.stem for path in job.folder.rglob("*.png")}
            with only_figures(committed) if into is None else nullcontext():
                job.draw(job.folder, out)
            target = job.folder if into is None else into / job.folder.relative_to(RESULTS)
            for png in sorted(out.rglob("*.png")):
                place = target / png.relative_to(out)
                if into is None and not place.exists():
                    continue
                place.parent.mkdir(parents=True, exist_ok=True)
                for ending in _FIGURE:
                    shutil.copyfile(png.with_suffix(ending), place.with_suffix(ending))
                yield place


def _draw_runs(folder: Path, out: Path) -> None:
    declared = pd.read_csv(folder / "runs.csv")
    targets = declared.filter(regex="^target_").iloc[:, 0].unique()
    target = float(targets[0]) if len(targets) == 1 else None
    write_report(folder / "runs", RESULTS / "quality", out, target, with_quality=False)
    for key, reference in (("activations", "none"), ("loader.decode", "libjpeg")):
        if (folder / "comparison_curves.png").exists() and folder.name in _COMPARED[key]:
            compare(FiguresConfig(runs_root=str(folder / "runs"), out=str(out)), key, reference)


_COMPARED = {"activations": ("compressed_activations",), "loader.decode": ("decode_modes",)}


def _draw_projected(folder: Path, out: Path) -> None:
    learned = RESULTS / "finetuning" / folder.name / "runs"
    write_projected(learned, folder / TIMED, RESULTS / "fair_baseline", out)


def _draw_quality(folder: Path, out: Path) -> None:
    save_quality_figures(load_quality(folder), folder, out)


def _draw_modes(folder: Path, out: Path) -> None:
    save_decode_modes(pd.read_csv(folder / "decode_modes.csv"), folder, out)


def _draw_validation(folder: Path) -> None:
    sets = ("time_to_accuracy", "short_real")
    report_validation(folder, [str(RESULTS / "archive" / name / "runs") for name in sets])


def _draw_plan(folder: Path, out: Path) -> None:
    plan = compose("throughput", f"plan={folder.name}").plan
    assert plan is not None
    report_plan(replace(plan, out=str(out)))


def _draw_activations(folder: Path, out: Path) -> None:
    for name in STUDY_FIGURES:
        if (folder / f"{name}.csv").exists():
            # `none` is a mode.
            rows = pd.read_csv(folder / f"{name}.csv", keep_default_na=False, na_values=[""])
            save_study_figure(name, rows, folder, out)


def _draw_sample_image(folder: Path, out: Path) -> None:
    shown = compose("quality", f"experiment={folder.name}")
    assert shown.image is not None
    write_sample_image(shown.image, shown.groups, out)


def _draw_overview(folder: Path, out: Path) -> None:
    save_overview(folder, out)


def _in_a_copy(draw: Callable[[Path], object], needs: str | None = None) -> Draw:
    """For what reads and writes one folder; nothing is drawn where the figure `needs` is not committed."""

    def drawn(folder: Path, out: Path) -> None:
        if needs is None or (folder / needs).exists():
            for path in folder.iterdir():
                if path.is_file() and path.suffix not in (".pdf", ".png"):
                    shutil.copyfile(path, out / path.name)
            draw(out)

    return drawn


def main(arguments: Sequence[str] | None = None) -> None:
    """Redraw what lies below the folders that were named; all, if none was.

    Raises:
        RunError: the package is installed without the repository.
    """
    if CHECKOUT is None:
        raise RunError("redraw: wanted a checkout of the repository, whose results/ it draws.")
    parser = argparse.ArgumentParser(
        prog=as_typed("python -m experiments.redraw"), description=as_typed(__doc__ or "")
    )
    parser.add_argument("folders", nargs="*", type=Path, default=[RESULTS])
    folders = [folder.resolve() for folder in parser.parse_args(arguments).folders]
    for path in redraw(job for job in jobs() if any(job.folder.is_relative_to(one) for one in folders)):
        print(path)
