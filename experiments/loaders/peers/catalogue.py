"""Catalogue of the loaders that can be measured, and why one is absent."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Protocol, cast

from pcr_exp.config.scan import is_level
from pcr_exp.config.scan_scripts import NUM_GROUPS
from pcr_exp.errors import ConfigError
from pcr_exp.measuring.throughput.job import FILTERED, Peer, own_decoder


class SourceImage(NamedTuple):
    """A JPEG file and its class index."""

    path: str
    label: int


class Format(Protocol):
    """Builder of the files that a peer reads; the peer's module implements it, too."""

    def build(self, images: Sequence[SourceImage], folder: Path) -> None:
        """Write the images into a new, empty folder."""
        ...


_EXTRA = "pip install 'pcr-exp[peers]'"

_FFCV_EXTRA = (
    "install OpenCV and libturbojpeg with their headers (Debian: libopencv-dev, libturbojpeg0-dev), against "
    "which it is compiled, then pip install 'pcr-exp[peers-ffcv]'"
)

OURS = "records"
"""The folder of our records, and the module of our loader."""

LINKS = "image_folder"
"""The folder of links to the original files."""


@dataclass(frozen=True, slots=True)
class PeerEntry:
    """A loader other than ours."""

    title: str
    decode: str
    """The decoder that it is measured with."""
    format: str
    """The folder that it reads; loaders of one format share it."""
    module: str
    """Its module in this package."""
    filter: str
    """Its filter when shrinking: `triangle`, as ours with `loader.antialias`; `areas`, means over the pixels
    that become one; `none`, as ours without."""
    needs: str | None = None
    """Package that must be importable, besides the project's own dependencies."""
    differs: str = "processes; decodes whole images"
    """How its work differs from ours, in a few words for its row; the module docstring has details."""
    install: str = _EXTRA
    """How to install `needs`."""


_THREADS = "threads, not processes"

_FFCV = f"{_THREADS}; decodes whole images, by a less exact inverse DCT"

_ROUGH = "; shuffles within a buffer"

PEERS: dict[str, PeerEntry] = {
    "image_folder_pil": PeerEntry("ImageFolder, PIL", "pil", LINKS, "image_folder", "triangle"),
    "image_folder_torchvision": PeerEntry(
        "ImageFolder, torchvision", "torchvision", LINKS, "image_folder", "triangle"
    ),
    # Replaces torchvision's decoders, which are deprecated from torchvision 0.29 on.
    "image_folder_torchcodec": PeerEntry(
        "ImageFolder, TorchCodec", "torchcodec", LINKS, "image_folder", "triangle", "torchcodec"
    ),
    "webdataset": PeerEntry(
        "WebDataset",
        *("torchcodec", "webdataset", "web_dataset", "triangle", "webdataset"),
        differs=f"processes; decodes whole images{_ROUGH}",
    ),
    "streaming": PeerEntry(
        "MosaicML Streaming", "torchcodec", "streaming", "mosaic_streaming", "triangle", "streaming"
    ),
    "litdata": PeerEntry("LitData", "torchcodec", "litdata", "lit_data", "triangle", "litdata"),
    "tfrecord": PeerEntry(
        "TFRecord, tf.data",
        *("tensorflow", "tfrecord", "tfrecord", "none", "tensorflow"),
        differs=f"{_THREADS}; decodes what a crop needs{_ROUGH}",
    ),
    "dali": PeerEntry(
        "DALI, CPU",
        *("dali", LINKS, "dali", "triangle", "nvidia.dali"),
        differs=f"{_THREADS}; decodes what a crop needs; one order for all runs",
    ),
    "ffcv": PeerEntry(
        "FFCV, original bytes",
        *("ffcv", "ffcv", "beton", "areas", "ffcv"),
        differs=_FFCV,
        install=_FFCV_EXTRA,
    ),
    "ffcv_again": PeerEntry(
        "FFCV, its own files",
        *("ffcv", "ffcv_again", "ffcv_reencoded", "areas", "ffcv"),
        differs=f"LOSSY: images encoded again at JPEG quality 90, 4:2:0; {_FFCV}",
        install=_FFCV_EXTRA,
    ),
}

_OURS_DIFFER = "processes; decodes what a crop needs"


def absence(name: str) -> str | None:
    """Return why a loader cannot be measured here; None if it needs no package, or its package is found.

    Raises:
        ConfigError: there is no such loader.
    """
    entry = _entry(name)
    if entry is None or entry.needs is None or _is_installed(entry.needs):
        return None
    return f"{entry.needs} is not installed: {entry.install}"


def open_peer(name: str) -> Peer:
    """Return a loader's module. Raises ImportError if a package that it needs cannot be imported."""
    from pcr_exp.measuring.throughput import records

    entry = _entry(name)
    return cast(Peer, records if entry is None else _import(entry.module))


def open_format(name: str) -> Format:
    """Return the module that builds a peer's format. Raises ImportError if a package cannot be imported."""
    return cast(Format, _import(PEERS[name].module))


def decoder_label(name: str, decode: str, *, antialias: bool) -> str:
    """Return the decoder's name in rows: `<decode>, filtered` for ours with the resize filter.

    Without the filter it is the bare name, as in rows from before the filter existed.
    """
    return own_decoder(decode, antialias=antialias) if is_ours(name) else decode


def filter_of(name: str, decoder: str) -> str:
    """Return a loader's resize filter, as in `PeerEntry.filter`; `decoder` is the name in its row."""
    entry = _entry(name)
    return entry.filter if entry else "triangle" if decoder.endswith(FILTERED) else "none"


def differs_of(name: str) -> str:
    """Return how a loader's work differs from that of others, for its row."""
    entry = _entry(name)
    return _OURS_DIFFER if entry is None else entry.differs


def format_of(name: str) -> str:
    """Return the folder that a loader reads."""
    entry = _entry(name)
    return OURS if entry is None else entry.format


def title_of(name: str) -> str:
    """Return the name of a loader for tables."""
    entry = _entry(name)
    return name.replace("_", " ") if entry is None else entry.title


def is_ours(name: str) -> bool:
    """Return whether a loader's name is one of our scan levels."""
    return _entry(name) is None


def _import(module: str) -> ModuleType:
    return importlib.import_module(f"{__package__}.{module}")


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the package that contains it is missing, too
        return False


def _entry(name: str) -> PeerEntry | None:
    """Return a peer's entry; None for ours."""
    if name in PEERS:
        return PEERS[name]
    if not is_level(name):
        wanted = f"baseline, group_1 to group_{NUM_GROUPS}, or {', '.join(PEERS)}"
        raise ConfigError(f"{name!r} is no loader: wanted {wanted}.")
    return None
