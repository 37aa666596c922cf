"""Draw every figure that runs and measurements on disk allow; print the summary. See `--help`."""

from rich.console import Console

from experiments.launch import launch
from pcr_exp.analysis.render import to_rich
from pcr_exp.analysis.report import Report, write_report
from pcr_exp.config.runners import FiguresConfig


def figures(config: FiguresConfig) -> str:
    """Write figures and tables; returns "finished"."""
    show(write_report(config.runs_root, config.quality_root, config.out))
    return "finished"


def show(report: Report) -> None:
    """Print the tables, what did not finish, and where the figures are."""
    console = Console()
    for table in to_rich(report.summary):
        console.print(table)
    for run in report.unfinished.to_dict("records"):
        console.print(f"not in the tables: {run['run_id']} ({run['status']})", style="yellow")
    for path in report.figures:
        if path.suffix == ".png":  # PDF and CSV lie beside it
            console.print(f"figure: {path}", soft_wrap=True, highlight=False)


if __name__ == "__main__":
    launch(figures, "figures", FiguresConfig)
