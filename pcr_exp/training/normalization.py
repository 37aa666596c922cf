"""What a model wants its pixels normalised with: a property of the weights that it starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torchvision  # type: ignore[import-untyped]

from pcr_exp.config.model import ModelConfig
from pcr_exp.training.weights import read_beside_weights

KEY = "normalization"
"""Of a checkpoint."""


class Normalization(NamedTuple):
    """(pixels - mean) / std, of red, green and blue in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def to_plain(self) -> dict[str, list[float]]:
        """What a checkpoint holds; `from_plain` reads it."""
        return {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_plain(cls, values: Mapping[str, Sequence[float]]) -> Normalization:
        """What `to_plain` gave."""
        return cls(tuple(values["mean"]), tuple(values["std"]))


IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Of ImageNet's training images. What starts from nothing gets these, on every dataset: any would do."""


def normalization_of(config: ModelConfig) -> Normalization:
    """Return `model.mean` and `model.std` if given, else what the model's weights were trained with.

    A checkpoint of a run that is given as weights says it itself. Of other files, and of torchvision's own
    weights, it is what torchvision says of its default weights for this model.

    Raises:
        ConfigError: the file of weights cannot be read.
    """
    if config.mean is not None and config.std is not None:
        return Normalization(tuple(config.mean), tuple(config.std))
    if not config.pretrained:
        return IMAGENET
    if config.weights is not None:
        kept = read_beside_weights(config.weights, KEY)
        if kept is not None:
            return Normalization.from_plain(kept)
    choices = torchvision.models.get_model_weights(config.name)
    if not len(choices):
        return IMAGENET
    published = choices.DEFAULT.transforms()
    return Normalization(tuple(published.mean), tuple(published.std))
