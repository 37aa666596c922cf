"""Write what the papers claim and what came out here, and under what each page's numbers were measured."""

from dataclasses import asdict
from pathlib import Path

from experiments.claims.page import write_claims
from experiments.claims.settings import ReportConfig
from pcr_exp.analysis.measured_under import write_measured
from pcr_exp.cli.shown import show, track_files
from pcr_exp.errors import RunError


def report(config: ReportConfig) -> str:
    """Write claims.csv and claims.md into the folder of results, and renew its pages; returns "finished".

    Raises:
        RunError: there is no such folder, or a page or numerics.csv lacks what it must say.
    """
    if not Path(config.results_root).is_dir():
        raise RunError(
            f"results_root={config.results_root}: there is no such folder. Claims are decided by committed "
            "results: wanted the folder `results` of a checkout of the repository."
        )
    readme = None if config.readme is None else Path(config.readme)
    files = write_claims(Path(config.results_root), readme)
    write_measured(Path(config.results_root), *([] if readme is None else [readme]))
    track_files(config.tracking, "report", Path(config.results_root), asdict(config), files)
    show(files)
    return "finished"
