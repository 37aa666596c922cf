"""Write what the papers claim and what came out here, from the committed files."""

from dataclasses import asdict
from pathlib import Path

from experiments.studies.shown import show, track_files
from pcr_exp.analysis.claims.page import write_claims
from pcr_exp.config.runners import ReportConfig


def report(config: ReportConfig) -> str:
    """Write claims.csv and claims.md into the folder of results; returns "finished"."""
    readme = None if config.readme is None else Path(config.readme)
    files = write_claims(Path(config.results_root), readme)
    track_files(config.tracking, "report", Path(config.results_root), asdict(config), files)
    show(files)
    return "finished"
