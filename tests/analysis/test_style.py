"""Scan levels have the same style and name in every figure."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from pcr_exp.analysis.frame import SHARE
from pcr_exp.analysis.style import (
    POLICY_STYLES,
    SHARES_OF_SCRIPTS,
    ScanLevel,
    fallback_style,
    group_color,
    group_marker,
    level_of,
    names_of,
    scan_levels,
    share_color,
)
from pcr_exp.places import CHECKOUT

BASELINE = ScanLevel("baseline", "baseline", 1)
LEVELS = [BASELINE, *(ScanLevel(f"group_{group}", "pcr", group) for group in (1, 2, 5, 10))]


def policy(label: str) -> ScanLevel:
    return ScanLevel(label, "pcr", math.nan)


def test_scan_levels_differ_in_colour_lightness_and_marker() -> None:
    lightness = [np.dot(to_rgb(level.color), (0.2126, 0.7152, 0.0722)) for level in LEVELS]
    groups = lightness[1:]
    assert all(lighter - darker > 0.05 for lighter, darker in pairwise(groups))
    assert len({BASELINE.marker, *(group_marker(group) for group in range(1, 11))}) == 11
    levels = [*LEVELS, *map(policy, POLICY_STYLES), policy("anybodys")]
    assert len({level.color for level in levels}) == len({level.marker for level in levels}) == len(levels)
    assert policy("cosine_often").color == policy("cosine").color
    dashes = {str(level.dashes) for level in (BASELINE, LEVELS[1], policy("cosine"))}
    assert len(dashes) == 3 and policy("cosine").dashes == policy("anybodys").dashes


def test_a_name_that_no_table_of_looks_has_looks_the_same_everywhere() -> None:
    assert fallback_style("anybodys") == ("#478b9e", "<"), "by the name alone, in every session"
    looks = {fallback_style(name) for name in ("anybodys", "another", "a third")}
    assert len(looks) == 3


def test_scan_levels_are_ordered_by_bytes_and_policies_come_last() -> None:
    mixed = [policy("cosine"), LEVELS[4], LEVELS[2], BASELINE, policy("balanced"), LEVELS[1], LEVELS[2]]
    rows = pd.DataFrame(
        {"scan": level.label, "encoding": level.encoding, "group": level.group} for level in mixed
    )
    levels = scan_levels(rows)
    assert [level.label for level, _ in levels] == [
        *("baseline", "group_1", "group_2", "group_10", "balanced", "cosine")
    ]
    assert [len(of_level) for _, of_level in levels] == [1, 1, 2, 1, 1, 1]


def test_groups_of_another_script_have_the_colour_of_their_share_of_the_bytes() -> None:
    ours = [ScanLevel(f"group_{group}", group=group).color for group in range(1, 11)]
    assert ours == [group_color(group) for group in range(1, 11)], "libjpeg's script keeps its ten colours"
    row = {"scan": "group_6 of spectral", "encoding": "pcr", "group": 6}
    assert level_of(row).color == group_color(10), "all scans, whatever their number"
    assert level_of(row | {"scan": "group_1 of mine", "group": 1}).color == group_color(1), "by its number"
    own = row | {"scan": "group_1 of mine", "group": 1, SHARE: 0.466}
    assert level_of(own).color == group_color(5) == share_color(0.466)


def test_shares_of_scripts_are_those_that_were_measured() -> None:
    measured = pd.read_csv((CHECKOUT or Path()) / "results" / "scan_scripts" / "groups.csv")
    of_group = measured.groupby(["script", "group"])["bytes_share"].first()
    for script, shares in SHARES_OF_SCRIPTS.items():
        found = of_group[script] / of_group[script].max()
        assert found.tolist() == pytest.approx(shares, abs=0.0006)


def test_a_policy_has_its_name_alone_unless_there_are_several_of_it() -> None:
    cosine, mixed = policy("cosine (first_epoch=2, every_epochs=3)"), policy("mixture (weights=[1,2])")
    assert names_of([BASELINE, cosine, mixed]) == {BASELINE: "baseline", cosine: "cosine", mixed: "mixture"}
    again = policy("cosine (first_epoch=4)")
    assert names_of([cosine, again]) == {
        cosine: "cosine (first epoch=2, every\nepochs=3)",
        again: "cosine (first epoch=4)",
    }
