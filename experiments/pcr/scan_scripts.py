"""Measure scan scripts on native images: `python -m experiments.pcr.scan_scripts`.

It writes four tables to outputs/scan_scripts, each with a `.json` of its settings. `writers.csv`: the cost of
each way to write a script. `search.csv`: bytes and time of each script of a family, and whether another beats
it. `groups.csv`: every group of the scripts in `records.scans`. `crops.csv`: their speed against Pillow's.

A script's middle is its cheapest prefix with an MS-SSIM at most 0.003 below group 5 of libjpeg's script.
Seconds are CPU time of one thread, interleaved. Ratios are to the original files, decoded by the same
library.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from omegaconf import OmegaConf

from experiments.pcr import scan_script_costs as writers
from experiments.pcr.scan_script_costs import (
    CutImages,
    Similarities,
    baseline_cases,
    cpu_ms,
    crop_cases,
    decoding_cases,
    native_files,
    optimised_bytes,
)
from experiments.results.study import TABLES_FILE, Row, Study, one_core, save_rows, to_markdown
from pcr_exp.analysis.caption import Caption, describe_hardware
from pcr_exp.analysis.figure import footer, panel_title, panels, save_figure
from pcr_exp.analysis.frame import WHOLE, describe_ms_ssim
from pcr_exp.analysis.style import INK, MUTED, OTHER_STYLES, share_color, style
from pcr_exp.analysis.tables import Cell, interval_cell, markdown_table
from pcr_exp.config.scan_scripts import JpegScan, ScanScript, ScanScriptConfig, check_scans
from pcr_exp.places import CONFIGS
from pcr_exp.system.provenance import write_measured

MIDDLE_GROUP = 5

SLACK = 0.003
"""Maximum MS-SSIM that a script's middle prefix may lose to group 5 of libjpeg's script."""

_LAST = 63

_EVERY = (0, 1, 2)

Band = tuple[int, int, int]
"""First and last coefficient of a luma scan, and the bit at which it stops."""


def named_scripts() -> dict[str, ScanScript]:
    """Return the scripts of `records.scans`, by name."""
    found = {}
    for path in sorted((CONFIGS / "records.scans").glob("*.yaml")):
        merged = OmegaConf.merge(OmegaConf.structured(ScanScriptConfig), OmegaConf.load(path))
        config: ScanScriptConfig = OmegaConf.to_object(merged)  # type: ignore[assignment]
        found[config.name] = config.script
    return found


def searched_scripts() -> dict[str, ScanScript]:
    """Return scripts with one to three luma bands, each to its own bit, and chroma early, midway or late.

    Names are such as `Y 1-5, C, Y 6-63 to bit 1`. Further scans refine luma bit by bit, where it is coarser.
    """
    found = {}
    for bands, chroma_low in product(_luma_bands(), (0, 1)):
        if chroma_low and not any(low for _, _, low in bands):
            continue  # refining chroma after whole luma adds scans, and makes nothing earlier
        for place in range(1, len(bands) + 1):
            name, script = _script(bands, place, chroma_low)
            found[name] = script
    return found


def _luma_bands() -> Iterator[list[Band]]:
    yield [(1, _LAST, 0)]
    for cut in (5, 9, 20):
        yield [(1, cut, 0), (cut + 1, _LAST, 0)]
        yield [(1, cut, 0), (cut + 1, _LAST, 1)]
    for first, second in ((2, 9), (5, 20), (9, 27)):
        yield [(1, first, 0), (first + 1, second, 0), (second + 1, _LAST, 0)]
    yield [(1, 5, 0), (6, 20, 1), (21, _LAST, 1)]
    for cut in (5, 9):
        yield [(1, cut, 1), (cut + 1, _LAST, 1)]
        yield [(1, cut, 0), (cut + 1, _LAST, 2)]
    yield [(1, 5, 1), (6, _LAST, 2)]
    yield [(1, 5, 2), (6, _LAST, 2)]


def _script(bands: Sequence[Band], place: int, chroma_low: int) -> tuple[str, ScanScript]:
    """Return a name and script with chroma after `place` bands of luma."""
    luma = [JpegScan((0,), first, last, 0, low) for first, last, low in bands]
    chroma = [JpegScan((component,), 1, _LAST, 0, chroma_low) for component in (2, 1)]
    scans = [JpegScan(_EVERY, 0, 0, 0, 0), *luma[:place], *chroma, *luma[place:]]
    for low in range(max(low for _, _, low in bands), 0, -1):
        lacking = [band for band in bands if band[2] >= low]
        scans.append(JpegScan((0,), lacking[0][0], lacking[-1][1], low, low - 1))
    scans += [JpegScan((component,), 1, _LAST, 1, 0) for component in (2, 1) if chroma_low]
    words = [f"Y {first}-{last}{f' to bit {low}' if low else ''}" for first, last, low in bands]
    words.insert(place, f"C{' to bit 1' if chroma_low else ''}")
    check_scans("searched", scans)
    return ", ".join(words), ScanScript(tuple(scans))


def is_on_front(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which rows are on the Pareto front, where small is good in every column, bool [n].

    Args:
        costs: [n, columns]; NaN counts as infinite.
    """
    filled = np.nan_to_num(costs, nan=np.inf)
    no_worse = (filled[:, None] <= filled[None]).all(axis=2)
    better = (filled[:, None] < filled[None]).any(axis=2)
    beaten = np.asarray(np.any(no_worse & better, axis=0))
    return ~beaten


TABLES = ("writers", "crops", "groups", "search")


def search(files: Sequence[bytes], num_compared: int, turns: int) -> pd.DataFrame:
    """Return a row per script: bytes, middle and time of all scans; shares are of the optimised baseline."""
    named = named_scripts()
    every = {**named, **{name: s for name, s in searched_scripts().items() if s not in named.values()}}
    cuts = {name: CutImages(script, files) for name, script in every.items()}
    last = {name: [script.num_groups] for name, script in every.items()}
    spent = cpu_ms(baseline_cases(files) | decoding_cases(cuts, last), len(files), turns)
    similar, optimised = Similarities(files[:num_compared]), optimised_bytes(files).sum()
    wanted = similar.mean(cuts["default"], MIDDLE_GROUP, num_compared) - SLACK
    rows = []
    for name, cut in cuts.items():
        ratios = spent[f"{name} {cut.script.num_groups}"] / spent["baseline"]
        shares = cut.group_bytes.sum(axis=0) / optimised
        group, similarity = _middle(cut, similar, num_compared, wanted)
        rows.append(
            {
                "script": name,
                "num_scans": cut.script.num_groups,
                "bytes_share": shares[-1],
                "middle_group": group,
                "middle_bytes_share": shares[group - 1],
                "middle_ms_ssim": similarity,
                "full_decode": np.median(ratios),
                "full_decode_low": ratios.min(),
                "full_decode_high": ratios.max(),
                "is_option": name in named,
                "scans": cut.script.id,
            }
        )
    frame = pd.DataFrame(rows)
    costs = frame[["bytes_share", "middle_bytes_share", "full_decode"]].round(3)
    return frame.assign(on_front=is_on_front(costs.to_numpy(float)))


def _middle(cut: CutImages, similar: Similarities, num_images: int, wanted: float) -> tuple[int, float]:
    """Return the lowest group that reaches `wanted`, and its similarity, searching from the highest down."""
    group, reached = cut.script.num_groups, 1.0
    while group > 1:
        found = similar.mean(cut, group - 1, num_images)
        if found < wanted:
            break
        group, reached = group - 1, found
    return group, reached


def groups(
    named: Mapping[str, ScanScript], files: Sequence[bytes], num_compared: int, turns: int
) -> Iterator[Row]:
    """Yield one row per script, group and turn."""
    cuts = {name: CutImages(script, files) for name, script in named.items()}
    every = {name: range(1, cut.script.num_groups + 1) for name, cut in cuts.items()}
    spent = cpu_ms(baseline_cases(files) | decoding_cases(cuts, every), len(files), turns)
    similar, optimised = Similarities(files[:num_compared]), optimised_bytes(files).sum()
    for name, cut in cuts.items():
        shares = cut.group_bytes.sum(axis=0) / optimised
        for group in every[name]:
            similarity = similar.mean(cut, group, num_compared)
            for turn, cpu in enumerate(spent[f"{name} {group}"]):
                yield {
                    "script": name,
                    "group": group,
                    "repeat": turn,
                    "bytes_share": shares[group - 1],
                    "ms_ssim": similarity,
                    "cpu_ms": cpu,
                    "of_baseline": cpu / spent["baseline"][turn],
                }


def crops(named: Mapping[str, ScanScript], files: Sequence[bytes], turns: int) -> Iterator[Row]:
    """Yield a row per way to decode, work and turn; `of_pillow` is the speed relative to Pillow's."""
    cuts = {name: CutImages(script, files) for name, script in named.items()}
    last = {name: [cut.script.num_groups] for name, cut in cuts.items()}
    whole = baseline_cases(files) | decoding_cases(cuts, last)
    cases = {f"{name.split()[0]} whole": case for name, case in whole.items()} | crop_cases(files, cuts)
    spent = cpu_ms(cases, len(files), turns)
    for case, values in spent.items():
        name, work = case.split()
        for turn, (cpu, pillow) in enumerate(zip(values, spent[f"pillow {work}"], strict=True)):
            yield {"work": work, "read": name, "repeat": turn, "cpu_ms": cpu, "of_pillow": pillow / cpu}


def measure(given: Namespace) -> None:
    """Measure the requested tables."""
    one_core()
    given.out.mkdir(parents=True, exist_ok=True)
    files = native_files(given.images, given.num_images)
    few = native_files(given.images, given.num_searched)
    named = {name: script for name, script in named_scripts().items() if name in (given.scripts or [name])}
    compared, turns = min(given.num_compared, given.num_images), given.repeats
    tables: dict[str, Callable[[], Iterable[Row]]] = {
        "writers": lambda: writers.rows(named_scripts()["spectral"], few, turns),
        "crops": lambda: crops(named, files, turns),
        "groups": lambda: groups(named, files, compared, turns),
    }
    facts = {"num_images": len(files), "num_searched": len(few), "num_compared": compared, "repeats": turns}
    for name in given.only:
        if name == "search":
            found = search(few, min(compared, len(few)), turns)
            found.to_csv(given.out / "search.csv", index=False, float_format="%.6g")
        else:
            save_rows(list(tables[name]()), given.out / f"{name}.csv")
        write_measured(given.out / f"{name}.json", facts)


NAME = "front"
SEARCH_FILE = "search.csv"
_OF_BASELINE = "full decode / baseline's"
_DEFAULT = "default"
_TABLES = (
    "The front",
    "Every group of the named scripts",
    "The same work as Pillow",
    "Ways to write a script",
)


def draw_front(
    search: pd.DataFrame, groups: pd.DataFrame, facts: Mapping[str, Any], of_groups: Mapping[str, Any]
) -> Figure:
    """Draw full decoding against bytes and against a middle prefix's bytes, and quality against bytes.

    One marker per script, filled if no other script beats it in all three costs. Colours in the third panel
    show the share of bytes, as in every figure. `facts` and `of_groups` are those of the two tables.
    """
    styles = dict(zip([_DEFAULT, *_others(search)], [(INK, "s"), *OTHER_STYLES], strict=False))
    with style():
        figure, (whole, middle, quality) = panels(3)
        for ax, column in ((whole, "bytes_share"), (middle, "middle_bytes_share")):
            _draw_scripts(ax, search, column, styles)
            ax.set_ylabel(_OF_BASELINE)
        whole.set_xlabel("bytes of all scans / optimised baseline")
        middle.set_xlabel("bytes of the middle prefix / optimised baseline")
        spread = f"median of {facts['repeats']} turns, bars: range"
        panel_title(whole, "All scans", f"{spread}; n = {facts['num_searched']} images")
        told = f"as good as group {MIDDLE_GROUP} of default, to {SLACK} of MS-SSIM"
        panel_title(middle, "A middle prefix", f"{told}; n = {facts['num_compared']} images")
        for name, rows in groups.groupby("script", sort=False):
            _draw_quality(quality, rows.groupby("group").first(), styles[str(name)])
        quality.set_xlabel("bytes / optimised baseline")
        quality.set_ylabel(f"1 - {describe_ms_ssim([WHOLE])}")
        quality.set_yscale("log")
        panel_title(quality, "Every prefix", f"decode=scaled; n = {of_groups['num_compared']} images")
        whole.legend(loc="upper right")
        footer(figure, f"CPU time of one thread, scripts by turns; commit {str(facts['git_sha'])[:7]}")
    return figure


def _others(search: pd.DataFrame) -> list[str]:
    named = search[search["is_option"]]["script"]
    return [str(name) for name in named if name != _DEFAULT]


def _draw_scripts(ax: Axes, search: pd.DataFrame, column: str, styles: Mapping[str, tuple[str, str]]) -> None:
    for row in search.to_dict("records"):
        name, at, cost = str(row["script"]), row[column], row["full_decode"]
        color, marker = styles.get(name, (MUTED, "o"))
        reach = [[cost - row["full_decode_low"]], [row["full_decode_high"] - cost]]
        filled = color if row["on_front"] else "none"
        ax.errorbar(
            at,
            cost,
            yerr=reach,
            color=color,
            marker=marker,
            markerfacecolor=filled,
            markersize=7 if name in styles else 4.5,
            elinewidth=0.8,
            linestyle="none",
            label=name if name in styles else None,
            zorder=3 if name in styles else 2,
        )


def _draw_quality(ax: Axes, rows: pd.DataFrame, look: tuple[str, str]) -> None:
    """Draw a line for a script, through markers coloured by their share of its bytes."""
    below = rows[rows["ms_ssim"] < 1]
    color, marker = look
    ax.plot(below["bytes_share"], 1 - below["ms_ssim"], color=color, linewidth=1.1, zorder=1)
    for share, similarity in zip(below["bytes_share"], below["ms_ssim"], strict=True):
        filled = share_color(share / rows["bytes_share"].max())
        ax.plot(share, 1 - similarity, marker=marker, color=filled, markeredgecolor=color, markersize=6)


def read_search(folder: Path) -> pd.DataFrame:
    """Read the rows of a search; scripts that are options of `records.scans` by now get their names."""
    search = pd.read_csv(folder / SEARCH_FILE)
    names = {script.id: name for name, script in named_scripts().items()}
    known = search["scans"].map(names)
    return search.assign(script=known.fillna(search["script"]), is_option=known.notna())


def draw_folder(folder: Path, out: Path) -> list[Path]:
    """Draw `front` from the measurements in a folder."""
    search, groups = read_search(folder), pd.read_csv(folder / "groups.csv")
    facts, of_groups = (json.loads((folder / f"{name}.json").read_text()) for name in ("search", "groups"))
    caption = Caption(
        shows=f"What {len(search)} scan scripts cost and keep",
        of=("native ImageNet images · whole images · no model",),
        n=f"n = {facts['num_searched']} images, of which {facts['num_compared']} were compared; of the last "
        f"panel {of_groups['num_images']} and {of_groups['num_compared']}",
        hardware=describe_hardware(facts),
        storage="no storage: images lie in memory",
    )
    draw = partial(draw_front, groups=groups, facts=facts, of_groups=of_groups)
    return save_figure(draw, search, out, NAME, caption)


def tables(folder: Path) -> str:
    """Return the content of TABLES_FILE: _TABLES, with scripts that are on the front or have a name."""
    search = read_search(folder).sort_values("full_decode")
    shown = search[search["on_front"] | search["is_option"]]
    columns: dict[str, Cell] = {
        "script": lambda row: str(row["script"]),
        "scans": lambda row: str(row["num_scans"]),
        "bytes": lambda row: f"{row['bytes_share']:.3f}",
        f"middle: group, bytes, {describe_ms_ssim([WHOLE])}": lambda row: (
            f"{row['middle_group']}, {row['middle_bytes_share']:.3f}, {row['middle_ms_ssim']:.3f}"
        ),
        "full decode": interval_cell("full_decode", "{:.2f}".format),
        "on the front": lambda row: "yes" if row["on_front"] else "no",
    }
    measured = [to_markdown(pd.read_csv(folder / f"{name}.csv")) for name in ("groups", "crops", "writers")]
    parts = ["# Every scan script of results/scan_scripts"]
    for title, table in zip(_TABLES, [markdown_table(shown, columns), *measured], strict=True):
        parts += [f"## {title}", table]
    return "\n\n".join(parts) + "\n"


def write_page(folder: Path, out: Path) -> list[Path]:
    """Write `front` and TABLES_FILE."""
    (out / TABLES_FILE).write_text(tables(folder))
    return [out / TABLES_FILE, *draw_folder(folder, out)]


main = Study(__doc__, "outputs/scan_scripts", measure, repeats=3)
main.add("--num-images", type=int, default=60)
main.add("--num-searched", type=int, default=24, help="images on which the family is tried")
main.add("--num-compared", type=int, default=24, help="images to compare by MS-SSIM")
main.add("--only", nargs="+", choices=TABLES, default=TABLES)
main.add("--scripts", nargs="+", choices=named_scripts(), help="of crops and groups; default: all")


if __name__ == "__main__":
    main()
