"""Draw every figure that runs and measurements on disk allow; print the summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from pcr_exp.analysis.caption import of_runs
from pcr_exp.analysis.comparison import compare_setting, comparison_to_markdown, draw_comparison
from pcr_exp.analysis.figure import save_figure
from pcr_exp.analysis.frame import run_frame
from pcr_exp.analysis.measured import measured_line
from pcr_exp.analysis.report import Page, Report, write_report
from pcr_exp.analysis.runs import read_runs
from pcr_exp.analysis.summary import to_rich
from pcr_exp.cli.dry_run import Planned
from pcr_exp.cli.terminal import print_figures, print_markdown, print_table, track_files
from pcr_exp.config.commands import FiguresConfig
from pcr_exp.errors import ConfigError
from pcr_exp.system.words import counted


def figures(
    config: FiguresConfig,
    pages: Sequence[Page] = (),
    project: Callable[[FiguresConfig, str], str] | None = None,
) -> str:
    """Write figures and tables. Return "finished".

    Args:
        config: Settings of the command.
        pages: Pages to write after the standard ones.
        project: Writes projected times to accuracy from the runs in `timing_root`, and returns their page.

    Raises:
        ConfigError: `timing_root` is given without `project`.
    """
    if config.timing_root is not None and project is None:
        raise ConfigError(
            f"timing_root={config.timing_root}: wanted null. Times to accuracy are projected by the module "
            "experiments.figures of the repository: clone it, and run that."
        )
    report = write_report(
        config.runs_root,
        config.quality_root,
        config.out,
        config.target,
        pages=pages,
        exclusive_only=config.exclusive_only,
    )
    show(report)
    if config.timing_root is not None and project is not None:
        print_markdown(project(config, config.timing_root))
    if config.compare is not None and config.reference is not None:
        print_markdown(compare(config, config.compare, config.reference))
    out = Path(config.out)
    files = [*report.tables, *report.figures]
    track_files(config.tracking, f"figures-{out.name}", out, asdict(config), files)
    return "finished"


def compare(config: FiguresConfig, key: str, reference: str) -> str:
    """Write comparison.md and the figure `comparison`, whose CSV file is the table. Return the text."""
    runs, out = run_frame(read_runs(config.runs_root, config.target)), Path(config.out)
    table = compare_setting(runs, key, reference)
    text = comparison_to_markdown(table, key, reference) + "\n"
    text += measured_line(runs, table["difference_interval"]).rstrip()
    (out / "comparison.md").write_text(text + "\n")
    caption = of_runs(runs, f"Accuracy by {key}")
    draw = partial(draw_comparison, reference=reference)
    save_figure(draw, table, out, "comparison", caption)
    return text


def show(report: Report) -> None:
    """Print the tables, the runs and settings that are left out, and the paths of figures."""
    for table in to_rich(report.summary):
        print_table(table)
    for run in report.unfinished.to_dict("records"):
        print(f"not in the tables: {run['run_id']} ({run['status']})")
    if report.num_lone_groups:
        settings = counted(report.num_lone_groups, "setting")
        print(
            f"not in the figures of scan levels: {settings} with one scan level each; compare=<config group> "
            "compares settings"
        )
    print_figures(report.figures)


def plan(config: FiguresConfig) -> Planned:
    """Plan the files to draw from."""
    runs = (
        sum(1 for _ in Path(config.runs_root).glob("*/rows.jsonl")) if Path(config.runs_root).is_dir() else 0
    )
    facts = [f"{runs} folders of runs below {config.runs_root}", f"measurements below {config.quality_root}"]
    return Planned([*facts, f"into {config.out}"])
