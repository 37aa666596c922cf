"""Rebuild the files of results/ that follow from committed rows, for tests and for `experiments.redraw`.

`results/made_by.yaml` names the pages of each folder. A folder keeps the figures that it has, as PNG, each
with a CSV file unless another file there has the same rows. Tables of runs are left as they are.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from experiments.comet.page import FIGURES as STUDY_FIGURES
from experiments.comet.page import save_study_figure
from experiments.loaders.page import report_throughput
from experiments.loaders.scale_page import redraw_scale
from experiments.loaders.speed.pages import redraw_cached_reads, redraw_codec, redraw_encode, redraw_throttle
from experiments.pages import PAGES as PAPERS
from experiments.pcr.first_page import write_first_page
from experiments.pcr.model_validation_page import report_validation
from experiments.pcr.quality_overview import save_overview
from experiments.pcr.scan_scripts import write_page as write_scripts
from experiments.pcr.time_to_target_page import write_projected
from experiments.pcr.tolerance_slopes import measured_in, write_slopes
from experiments.pcr.tolerance_vs_training import write_comparison
from experiments.results.made_by import MADE_BY_FILE, made_by
from experiments.results.study import TABLES_FILE, tables_page
from pcr_exp.analysis.evaluation import draw_evaluation
from pcr_exp.analysis.figure import only_figures
from pcr_exp.analysis.one_image import write_sample_image
from pcr_exp.analysis.plan_page import report_plan
from pcr_exp.analysis.quality import save_decode_modes
from pcr_exp.analysis.report import write_report
from pcr_exp.analysis.tolerance_page import load_tolerance, write_tables
from pcr_exp.cli.figures import compare
from pcr_exp.config.commands import FiguresConfig
from pcr_exp.config.compose import compose
from pcr_exp.config.measuring import QualityConfig
from pcr_exp.config.throughput import ThroughputConfig
from pcr_exp.errors import RunError
from pcr_exp.measuring.quality import summarise_crops
from pcr_exp.places import CHECKOUT
from pcr_exp.runs.packed import pack_runs

RESULTS = (CHECKOUT or Path()) / "results"
_TIMED = "timed"

Page = Callable[..., object]
"""Writes a folder's files: takes the folder, the output folder, and arguments of its own."""


def rebuild(folder: Path, *, pictures: bool = False) -> dict[str, bytes]:
    """Return all files that follow from the rows of a folder of results/, by their path relative to it.

    Only figures with a committed PNG or CSV file are included. With `pictures`, their PNG files are made too.

    Raises:
        RunError: made_by.yaml lacks the folder or names an unknown page, or a page raises it.
    """
    made = made_by(RESULTS).get(folder.resolve())
    if made is None:
        raise RunError(f"{folder} is not in {RESULTS / MADE_BY_FILE}; wanted one of its folders.")
    if unknown := set(made.pages) - set(PAGES):
        raise RunError(
            f"{MADE_BY_FILE}: {folder} has pages {sorted(unknown)}; wanted some of {sorted(PAGES)}."
        )
    committed = {path.stem for ending in ("png", "csv") for path in folder.rglob(f"*.{ending}")}
    endings = ("png",) if pictures else ()
    with tempfile.TemporaryDirectory() as drawn, only_figures(committed, pictures=endings):
        for name, arguments in made.pages.items():
            PAGES[name](folder, Path(drawn), **arguments)
        paths = sorted(path for path in Path(drawn).rglob("*") if path.is_file())
        return {str(path.relative_to(drawn)): path.read_bytes() for path in paths}


def redraw(below: Sequence[Path] = ()) -> Iterator[Path]:
    """Redraw committed figures in place, rewrite each TABLES_FILE, and yield their paths.

    Args:
        below: Redraw only the folders of results/ at or below these, such as results/quality; empty: all.

    Raises:
        RunError: there is none at or below one of these.
    """
    above = [folder.resolve() for folder in below or [RESULTS]]
    for one in above:
        if not any(made.is_relative_to(one) for made in made_by(RESULTS)):
            raise RunError(f"{one}: wanted a folder of {RESULTS / MADE_BY_FILE}, or one above such folders.")
    for folder in (one for one in made_by(RESULTS) if any(map(one.is_relative_to, above))):
        files = rebuild(folder, pictures=True)
        for name in sorted(name for name in files if name.endswith(".png")):
            if not (folder / name).exists():
                continue
            for ending in (".png", ".csv"):
                path = (folder / name).with_suffix(ending)
                if path.exists():
                    path.write_bytes(files[str(Path(name).with_suffix(ending))])
            yield folder / name
        if TABLES_FILE in files:
            (folder / TABLES_FILE).write_bytes(files[TABLES_FILE])
            yield folder / TABLES_FILE


def _runs(
    folder: Path,
    out: Path,
    target: float | None = None,
    beside: Sequence[str] = (),
    key: str | None = None,
    reference: str | None = None,
) -> None:
    """Report a folder's runs; `beside` are sets in results/ with further levels of the same comparison."""
    sets = [folder / "runs", *(RESULTS / each for each in beside)]
    with tempfile.TemporaryDirectory() as joined:
        for each in sets:
            pack_runs(each, Path(joined), add=True)
        write_report(joined, RESULTS / "quality", out, target, pages=PAPERS)
        if key is not None and reference is not None:
            compare(FiguresConfig(runs_root=joined, out=str(out)), key, reference)


def _projected(folder: Path, out: Path, learned: str, targets: str) -> None:
    write_projected(RESULTS / learned, folder / _TIMED, RESULTS / targets, out)


def _decode_modes(folder: Path, out: Path) -> None:
    rows = pd.read_csv(folder / "decode_modes.csv")
    summarise_crops(rows).to_csv(out / "decode_modes_summary.csv", index=False)
    save_decode_modes(rows, folder, out)


def _validation(folder: Path, out: Path, runs: Sequence[str]) -> None:
    with_copy(lambda copy: report_validation(copy, [str(RESULTS / name / "runs") for name in runs]))(
        folder, out
    )


def _plan(folder: Path, out: Path) -> None:
    plan = compose("throughput", ThroughputConfig, f"plan={folder.name}").plan
    assert plan is not None
    report_plan(replace(plan, out=str(out)))


def _tolerance_vs_training(folder: Path, out: Path, trained: Sequence[str]) -> None:
    write_comparison(folder, [RESULTS / name for name in trained], out)


def _activations(folder: Path, out: Path) -> None:
    for name in STUDY_FIGURES:
        if (folder / f"{name}.csv").exists():
            # Keep the mode `none` as a string.
            rows = pd.read_csv(folder / f"{name}.csv", keep_default_na=False, na_values=[""])
            save_study_figure(name, rows, folder, out)


def _sample_image(folder: Path, out: Path) -> None:
    shown = compose("quality", QualityConfig, f"experiment={folder.name}")
    assert shown.image is not None
    write_sample_image(shown.image, shown.groups, out)


def _tables(folder: Path, out: Path, **titles: str) -> None:
    (out / TABLES_FILE).write_text(tables_page(folder, titles))


def with_copy(draw: Callable[[Path], object]) -> Page:
    """Adapt a page that reads and writes one folder: it gets a copy, and unchanged files are left out."""

    def drawn(folder: Path, out: Path) -> None:
        read = [path for path in folder.iterdir() if path.is_file() and path.suffix != ".png"]
        for path in read:
            shutil.copy2(path, out / path.name)
        draw(out)
        for path in read:
            if (out / path.name).stat().st_mtime_ns == path.stat().st_mtime_ns:
                (out / path.name).unlink()

    return drawn


PAGES: dict[str, Page] = {
    "activations": _activations,
    "cached_reads": redraw_cached_reads,
    "codec_speed": redraw_codec,
    "decode_modes": _decode_modes,
    "encode_speed": redraw_encode,
    "evaluation": with_copy(draw_evaluation),
    "first_page": lambda folder, out: write_first_page(folder.parent, out),
    "model_validation": _validation,
    "overview": save_overview,
    "plan": _plan,
    "projected": _projected,
    "runs": _runs,
    "sample_image": _sample_image,
    "scale": redraw_scale,
    "scan_scripts": write_scripts,
    "slopes": lambda folder, out: write_slopes(measured_in(folder), out),
    "tables": _tables,
    "throttle": redraw_throttle,
    "throughput": with_copy(report_throughput),
    "tolerance": lambda folder, out: write_tables(out, load_tolerance(folder)),
    "tolerance_vs_training": _tolerance_vs_training,
}
"""Pages, by their names in made_by.yaml."""
