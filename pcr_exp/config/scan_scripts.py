"""Scan scripts: which bits of which coefficients each scan of a progressive JPEG carries, in which order.

Scripts are written for images with luma and two chroma components. In images with another number of
components, such as grey ones, every component is coded as the script codes luma. Terms follow ITU-T T.81,
annex G.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pcr_exp.config.check import require

NUM_GROUPS = 10
"""Scan groups in a PCR record: libjpeg's default progressive script for YCbCr has ten scans. Other scripts
may have at most as many."""
SCANS = {"baseline": "none", "pcr": "libjpeg-default"}
"""Encoding -> id of the script that divides its images into scans; baseline stores files whole."""
FAMILY = "jpeg"
"""First part of the id of every script but the default."""
NUM_COMPONENTS = 3
LAST_COEFFICIENT = 63
_HIGHEST_BIT = 10
"""libjpeg's limit for 8-bit images."""


class JpegScan(NamedTuple):
    """One scan of a progressive JPEG."""

    components: tuple[int, ...]
    """0 is luma, 1 and 2 are chroma."""
    first: int
    """Ss: first coefficient, in zigzag order."""
    last: int
    """Se: last coefficient."""
    high: int
    """Ah: bit position at which the previous scan stopped; 0 if there was none."""
    low: int
    """Al: bit position at which this scan stops; 0 is the last bit."""

    def __str__(self) -> str:
        """Format the scan as a line of jpegtran's `-scans` files."""
        components = " ".join(map(str, self.components))
        return f"{components}: {self.first}-{self.last}, {self.high}, {self.low};"


@dataclass(frozen=True, slots=True)
class ScanScript:
    """The scans of an image, in order; scan i goes to group i of a record."""

    scans: tuple[JpegScan, ...]

    @property
    def num_groups(self) -> int:
        return len(self.scans)

    @property
    def id(self) -> str:
        """The whole script as one word. Records contain it, so readers need no other file."""
        return _id(self)

    def scans_of(self, num_components: int) -> tuple[JpegScan, ...]:
        """Return the scans of an image with this number of components.

        For other numbers than three, the scans of luma apply to each component in turn; DC scans cover all
        components at once. libjpeg's default script thus gives 6 scans for a grey image and 18 for CMYK.
        """
        return _scans_of(self, num_components)


@functools.cache
def _id(script: ScanScript) -> str:
    if script == DEFAULT:
        return SCANS["pcr"]
    scans = (
        f"{''.join(map(str, scan.components))}.{scan.first}.{scan.last}.{scan.high}.{scan.low}"
        for scan in script.scans
    )
    return "_".join([FAMILY, *scans])


@functools.cache
def _scans_of(script: ScanScript, num_components: int) -> tuple[JpegScan, ...]:
    if num_components == NUM_COMPONENTS:
        return script.scans
    every = tuple(range(num_components))
    scans: list[JpegScan] = []
    for scan in script.scans:
        if 0 in scan.components:
            turns = [every] if scan.first == 0 else [(component,) for component in every]
            scans += [scan._replace(components=turn) for turn in turns]
    return tuple(scans)


@functools.cache
def script_of(script_id: str) -> ScanScript:
    """Return the script for an id.

    Raises:
        ValueError: this is not the id of a script.
        ConfigError: the script does not carry every bit once.
    """
    if script_id == SCANS["pcr"]:
        return DEFAULT
    family, *parts = script_id.split("_")
    found = [re.fullmatch(r"([0-2]+)\.(\d+)\.(\d+)\.(\d+)\.(\d+)", part) for part in parts]
    if family != FAMILY or not parts or not all(found):
        raise ValueError(f"{script_id!r} is not the id of a scan script")
    fields = [match.groups() for match in found if match]
    scans = [JpegScan(tuple(map(int, components)), *map(int, rest)) for components, *rest in fields]
    check_scans(script_id, scans)
    return ScanScript(tuple(scans))


def check_scans(key: str, scans: list[JpegScan]) -> None:
    """Refuse scans that cannot form an image, or not a complete one.

    Raises:
        ConfigError: names the first problem; the message begins with `key`.
    """
    wanted = f"1 to {NUM_GROUPS} scans, the number of groups that records can have"
    require(1 <= len(scans) <= NUM_GROUPS, key, len(scans), wanted)
    everything = tuple(range(NUM_COMPONENTS))
    wanted = "coefficient 0 of components [0, 1, 2], so that group 1 shows an image in colour"
    begins = scans[0].components == everything and scans[0].first == 0
    require(begins, f"{key}[0]", str(scans[0]), wanted)
    bits = {component: [-1] * (LAST_COEFFICIENT + 1) for component in everything}
    for number, scan in enumerate(scans):
        place = f"{key}[{number}]"
        _check_scan(place, scan)
        for component in scan.components:
            for coefficient in range(scan.first, scan.last + 1):
                before = bits[component][coefficient]
                known = scan.high == (0 if before < 0 else before)
                said = (
                    "has no earlier scan: Ah is 0"
                    if before < 0
                    else f"has earlier scans down to bit {before}: Ah is {before}, and Al one less"
                )
                told = (
                    f"bits that follow the earlier scans; coefficient {coefficient} of component {component} "
                    f"{said}"
                )
                require(known and (before < 0 or scan.low == before - 1), place, str(scan), told)
                bits[component][coefficient] = scan.low
    for component, lowest in bits.items():
        lacks = [coefficient for coefficient, bit in enumerate(lowest) if bit != 0]
        wanted = (
            f"all bits of component {component}; its coefficients {lacks} are missing, or do not reach bit 0"
        )
        require(not lacks, key, "; ".join(map(str, scans)), wanted)


def _check_scan(place: str, scan: JpegScan) -> None:
    """Refuse a scan that T.81 does not allow (G.1.1.1.1) or libjpeg does not write."""
    components = scan.components
    rising = components == tuple(sorted({*components})) and bool(components)
    wanted = "components among 0, 1 and 2, each once and in order"
    require(rising and {*components} <= {0, 1, 2}, f"{place}.components", list(components), wanted)
    dc_alone = scan.first == scan.last == 0
    wanted = f"Ss 0 with Se 0, or Ss and Se in 1..{LAST_COEFFICIENT} of one component"
    ac_of_one = 1 <= scan.first <= scan.last <= LAST_COEFFICIENT and len(components) == 1
    require(dc_alone or ac_of_one, place, str(scan), wanted)
    bits = 0 <= scan.low <= _HIGHEST_BIT and 0 <= scan.high <= _HIGHEST_BIT
    require(bits, place, str(scan), f"Ah and Al in 0..{_HIGHEST_BIT}")


DEFAULT = ScanScript(
    (
        JpegScan((0, 1, 2), 0, 0, 0, 1),
        JpegScan((0,), 1, 5, 0, 2),
        JpegScan((2,), 1, 63, 0, 1),
        JpegScan((1,), 1, 63, 0, 1),
        JpegScan((0,), 6, 63, 0, 2),
        JpegScan((0,), 1, 63, 2, 1),
        JpegScan((0, 1, 2), 0, 0, 1, 0),
        JpegScan((2,), 1, 63, 1, 0),
        JpegScan((1,), 1, 63, 1, 0),
        JpegScan((0,), 1, 63, 1, 0),
    )
)
"""libjpeg's default script (jcparam.c, `jpeg_simple_progression`), used for PCR's records."""


def groups_of_script(key: str, groups: list[int], num_groups: int) -> list[int]:
    """Translate scan groups that were chosen for libjpeg's script to records with `num_groups` groups.

    If there are fewer than ten, 10 stands for the last group, and the list of all ten for all groups.

    Raises:
        ConfigError: there is no such group; the message begins with `key`.
    """
    if num_groups < NUM_GROUPS and groups == list(range(1, NUM_GROUPS + 1)):
        return list(range(1, num_groups + 1))
    fitted = [num_groups if group == NUM_GROUPS else group for group in groups]
    wanted = f"scan groups of records.scans, 1..{num_groups}; {NUM_GROUPS} stands for the last"
    require(all(1 <= group <= num_groups for group in fitted), key, groups, wanted)
    return fitted


@dataclass(kw_only=True, slots=True)
class ScanOfScriptConfig:
    """One scan, in the notation of T.81."""

    components: list[int]
    """0 is luma, 1 is Cb, 2 is Cr."""
    Ss: int
    """First coefficient, in zigzag order."""
    Se: int
    """Last coefficient."""
    Ah: int = 0
    """Bit position at which the previous scan stopped; 0 if there was none."""
    Al: int = 0
    """Bit position at which this scan stops; 0 is the last bit."""


def as_script(scans: Sequence[ScanOfScriptConfig]) -> ScanScript:
    """Return these scans as a script, without checking them."""
    return ScanScript(tuple(JpegScan(tuple(s.components), s.Ss, s.Se, s.Ah, s.Al) for s in scans))


def _default_scans() -> list[ScanOfScriptConfig]:
    return [
        ScanOfScriptConfig(components=list(components), Ss=first, Se=last, Ah=high, Al=low)
        for components, first, last, high, low in DEFAULT.scans
    ]


@dataclass(kw_only=True, slots=True)
class ScanScriptConfig:
    """How images are divided into scans, and so into how many groups; `records.scans=<option>`."""

    name: str = "default"
    """Name in figures and names of runs. Records contain the script itself."""
    scans: list[ScanOfScriptConfig] = field(default_factory=_default_scans)
    """The scans of an image, in order; scan i goes to group i of a record."""

    def __post_init__(self) -> None:
        check_scans("records.scans.scans", [*self.script.scans])
        is_default = self.name == "default"
        wanted = "default for libjpeg's script, and another name for other scripts"
        require(is_default == (self.script == DEFAULT), "records.scans.name", self.name, wanted)

    @property
    def script(self) -> ScanScript:
        """The script, hashable and comparable."""
        return as_script(self.scans)
