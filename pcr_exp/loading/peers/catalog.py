"""Every loader that can be measured, and what keeps a peer from it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import cast

from pcr_exp.config.records import NUM_GROUPS
from pcr_exp.config.scan import ScanConfig
from pcr_exp.errors import ConfigError
from pcr_exp.loading.peers.protocol import Format, Peer

_PACKAGE = "pcr_exp.loading.peers"
_NO_ADAPTER = "there is no adapter for it"
OURS = "records"
"""The folder and the module of ours."""
LINKS = "image_folder"
"""The folder of links to the original files."""


@dataclass(frozen=True, slots=True)
class PeerEntry:
    """A loader that is not ours."""

    title: str
    decode: str
    """The decoder that it is measured with."""
    format: str
    """The folder that it reads; loaders of one format share it."""
    module: str | None
    """In this package; None: there is no adapter."""
    absent_because: str = ""
    """Why there is no adapter."""


PEERS: dict[str, PeerEntry] = {
    "image_folder_pil": PeerEntry("ImageFolder, PIL", "pil", LINKS, "image_folder"),
    "image_folder_torchvision": PeerEntry("ImageFolder, torchvision", "torchvision", LINKS, "image_folder"),
    "webdataset": PeerEntry("WebDataset", "pil", "webdataset", None, absent_because=_NO_ADAPTER),
    "streaming": PeerEntry("MosaicML Streaming", "pil", "streaming", None, absent_because=_NO_ADAPTER),
    "tfrecord": PeerEntry("TFRecord, tf.data", "tensorflow", "tfrecord", None, absent_because=_NO_ADAPTER),
    "dali": PeerEntry("DALI, CPU", "dali", LINKS, None, absent_because=_NO_ADAPTER),
    "ffcv": PeerEntry("FFCV", "ffcv", "ffcv", None, absent_because=_NO_ADAPTER),
}


def absence(name: str) -> str | None:
    """Why a loader cannot be measured here; None if it can.

    Raises:
        ConfigError: there is no such loader.
    """
    entry = _entry(name)
    if entry is None:
        return None
    return entry.absent_because if entry.module is None else None


def open_peer(name: str) -> Peer:
    """The module of a loader. Raises ImportError if what it needs cannot be imported."""
    entry = _entry(name)
    return cast(Peer, _import(OURS if entry is None else entry.module))


def open_format(name: str) -> Format:
    """The module that builds what a peer reads. Raises ImportError if what it needs cannot be imported."""
    return cast(Format, _import(PEERS[name].module))


def format_of(name: str) -> str:
    """The folder that a loader reads."""
    entry = _entry(name)
    return OURS if entry is None else entry.format


def title_of(name: str) -> str:
    """What to call a loader in a table."""
    entry = _entry(name)
    return name.replace("_", " ") if entry is None else entry.title


def is_ours(name: str) -> bool:
    """Whether a loader's name is one of our scan levels."""
    return _entry(name) is None


def scan_of(name: str) -> ScanConfig:
    """The scan level of a name: `baseline`, or `group_1` to `group_10`.

    Raises:
        ConfigError: it is none of them.
    """
    if name == "baseline":
        return ScanConfig(name=name, encoding="baseline", group=1)
    stem, _, number = name.rpartition("_")
    if stem == "group" and number.isdecimal() and 1 <= int(number) <= NUM_GROUPS:
        return ScanConfig(name=name, group=int(number))
    raise ConfigError(f"{name!r} is no loader: wanted baseline, group_1 to group_10, or {', '.join(PEERS)}.")


def _import(module: str | None) -> ModuleType:
    return importlib.import_module(f"{_PACKAGE}.{module}")


def _entry(name: str) -> PeerEntry | None:
    """A peer's entry; None for ours."""
    if name not in PEERS:
        scan_of(name)
        return None
    return PEERS[name]
