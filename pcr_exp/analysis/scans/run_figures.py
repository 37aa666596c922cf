"""The figures of one run, drawn from its own files, and the traces of all policies of a set of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from omegaconf import OmegaConf

from pcr_exp.analysis.core.read_runs import Run
from pcr_exp.analysis.core.run_quality import has_policy
from pcr_exp.analysis.core.save import save_figure
from pcr_exp.analysis.core.statistics import seconds_of
from pcr_exp.analysis.policies.policy_trace import policy_trace
from pcr_exp.analysis.policies.policy_trace_figure import draw_policy_trace
from pcr_exp.analysis.scans.training_curve_figure import draw_training_curve
from pcr_exp.config.labels import scan_label
from pcr_exp.config.records import NUM_GROUPS
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.rows import Row, read_rows


def draw_run(folder: Path) -> dict[str, Path]:
    """Draw a run's training curve beside its rows, as `training_curve.{pdf,png,csv}`.

    If a scan policy decided anything, `policy_trace.{pdf,png,csv}` too.

    Returns:
        The PNG of each figure by its name.

    Raises:
        RunError: the run's rows are damaged.
    """
    directory = RunDirectory(folder)
    config = OmegaConf.load(directory.config_path)
    rows = read_rows(directory.rows_path)
    manifest = directory.manifest()
    title = f"{config.dataset.name} · {config.dataset.label} · {config.model.name}"
    scan = scan_label(OmegaConf.to_container(config.scan))  # type: ignore[arg-type]
    measured = pd.DataFrame([row for row in rows if row["kind"] != "policy"])
    guessed = (getattr(manifest, "majority_share", None), getattr(manifest, "num_classes", None))
    curve = draw_training_curve(measured, title, scan, config.dataset.target_top1, *guessed)
    drawn = {"training_curve": save_figure(curve, measured, folder, "training_curve")}
    if trace := _draw_trace(rows, title, scan, folder, "policy_trace"):
        drawn["policy_trace"] = trace
    return {name: next(path for path in paths if path.suffix == ".png") for name, paths in drawn.items()}


def write_traces(runs: Sequence[Run], out: Path) -> list[Path]:
    """Draw what each policy's run decided, as `traces/<policy>_s<seed>.{pdf,png,csv}` in `out`.

    Runs of one policy and seed in several settings have the setting's run id as their name. What all scans of
    an image take is known of newer runs; for others it is taken from a run of the last scan group on the same
    records, if there is one.
    """
    with_policy = [run for run in runs if has_policy(run.config)]
    names = [f"{run.config['scan']['name']}_s{run.manifest.seed}" for run in with_policy]
    paths: list[Path] = []
    for run, name in zip(with_policy, names, strict=True):
        manifest = run.manifest
        title = f"{manifest.dataset} · {manifest.label} · {manifest.model}"
        unique = name if names.count(name) == 1 else manifest.run_id
        scan = scan_label(run.config["scan"])
        paths += _draw_trace(run.rows, title, scan, out / "traces", unique, full_image_bytes(run, runs))
    return paths


def full_image_bytes(run: Run, runs: Sequence[Run]) -> float | None:
    """Mean bytes per image of all scans, as one of `runs` read them of the same records; None if none did."""
    of_all_scans = (
        other.manifest.mean_prefix_bytes
        for other in runs
        if other.manifest.train_fingerprint == run.manifest.train_fingerprint
        and other.manifest.encoding == run.manifest.encoding
        and other.manifest.scan_group == NUM_GROUPS
        and not has_policy(other.config)
    )
    return next(of_all_scans, None)


def _draw_trace(
    rows: Sequence[Row], title: str, scan: str, out: Path, name: str, full_image_bytes: float | None = None
) -> list[Path]:
    trace = policy_trace(rows, full_image_bytes)
    if trace.empty:
        return []
    return save_figure(draw_policy_trace(trace, title, scan, seconds_of(rows[-1])), trace, out, name)
