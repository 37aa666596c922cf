"""`dataset=mixture`: train on the records of several datasets, each with its share of the images."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pcr_exp.config.check import PATH, Bound, above, at_least, check_fields, or_null, require
from pcr_exp.config.components import register
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.errors import ConfigError

if TYPE_CHECKING:
    from pcr_exp.config.commands import TrainConfig

LABEL = "label"
"""Name of a mixture's label, whatever the sources' labels are called."""
EPOCHS = ("largest", "smallest")
_EPOCH = Bound(
    lambda epoch: epoch in EPOCHS or (epoch.isdecimal() and int(epoch) >= 1),
    "largest, smallest, or a number of images above 0",
)
_SOURCE_NAME = re.compile("[a-z][a-z0-9_]{0,15}")
_OF_RECORDS = {
    "root": None,
    "tune_fraction": 0.0,
    "split_seed": 42,
    "images_per_record": 1,
    "num_folds": None,
    "fold": None,
    "max_train_images": None,
}
"""Settings that were fixed when the sources' records were made, and the only value that they may have
here."""


@dataclass(kw_only=True, slots=True)
class SourceConfig:
    """The records of one dataset, and its part in a mixture."""

    root: Annotated[str, PATH] = MISSING
    """Folder or address of the records, with `train/`, `tune/` and `val/` in it."""
    share: Annotated[float, above(0)] = MISSING
    """Relative share of an epoch's images; shares are normalised by their sum."""
    group: Annotated[int | None, or_null(at_least(1))] = None
    """Scan group at which its training images are read (null: as set by `scan`)."""
    label: str | None = None
    """Name of the label to train on (null: the only one)."""


@dataclass(kw_only=True, slots=True)
class MixtureConfig(DatasetConfig):
    """Several datasets in one training run. Validation uses the validation images of all of them."""

    sources: Any = None
    """SourceConfig by name: `dataset.sources={a:{root:...,share:0.7},b:{root:...,share:0.3}}`."""
    epoch: Annotated[str, _EPOCH] = "largest"
    """Images per epoch. `largest`: enough to use every image of every source at least once. `smallest`: as
    many as possible without using an image twice. Or a number."""

    def __post_init__(self) -> None:
        DatasetConfig.__post_init__(self)
        given = {} if self.sources is None else self.sources
        if given:
            require_sources(given)
        self.sources = {str(name): _source(str(name), source) for name, source in given.items()}
        wanted = f"{LABEL}: each source has its own label, dataset.sources.<name>.label"
        require(self.label == LABEL, "dataset.label", self.label, wanted)
        for key, only in _OF_RECORDS.items():
            wanted = (
                f"{'null' if only is None else only}: the records of each source were made with a value of "
                "their own"
            )
            require(getattr(self, key) == only, f"dataset.{key}", getattr(self, key), wanted)


def require_sources(given: object) -> None:
    """Raise SettingError unless at least two sources are given by name."""
    wanted = "two or more: +dataset.sources.<name>.root=<records> +dataset.sources.<name>.share=<number>"
    require(isinstance(given, dict) and len(given) >= 2, "dataset.sources", given, wanted)


def _source(name: str, given: Any) -> SourceConfig:
    """Build a source. Raises ConfigError if a key is missing, unknown, of the wrong type, or invalid."""
    wanted = "names of at most 16 letters a to z, digits and _, which begin with a letter"
    require(_SOURCE_NAME.fullmatch(name) is not None, "dataset.sources", name, wanted)
    source = given
    if not isinstance(given, SourceConfig):
        try:
            source = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(SourceConfig), given))
        except (OmegaConfBaseException, ValueError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(
                f"dataset.sources.{name}={given!r}: {reason}; wanted root and share, and optionally group "
                "and label."
            ) from error
    check_fields(source, f"dataset.sources.{name}")
    return source


def check_training(config: TrainConfig, mixture: MixtureConfig) -> None:
    """Refuse settings that are unavailable when training on a mixture.

    Raises:
        SettingError: names the key and the valid values.
    """
    mixed = "with dataset=mixture"
    require(config.echo.name == "none", "echo", config.echo.name, f"none {mixed}")
    require(config.storage.cache is None, "storage.cache", config.storage.cache, f"null {mixed}")
    groups, wanted = config.training.eval_groups, f"no `same` {mixed}, whose sources have groups of their own"
    require("same" not in groups, "training.eval_groups", groups, wanted)
    for name, source in mixture.sources.items():
        fits = source.group is None or config.scan.encoding != "baseline"
        wanted = "null with scan=baseline, which has no groups"
        require(fits, f"dataset.sources.{name}.group", source.group, wanted)


@register("dataset", "mixture", MixtureConfig)
def refuse_mixture(config: DatasetConfig) -> NoReturn:
    """Raise ConfigError, because a mixture has neither images nor a records folder of its own."""
    raise ConfigError(
        f"dataset=mixture (dataset.name={config.name!r}): wanted a single dataset here. A mixture can only "
        "be trained on and evaluated. Run this for one source at a time, with the dataset=<option> from "
        "which its records were made."
    )
