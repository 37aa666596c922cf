"""The integers that a user's loss wants, from the class indexes that records hold."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pcr_exp.errors import ConfigError
from pcr_exp.records.index import RecordIndex

Labels: TypeAlias = Mapping[str, int] | Callable[[str], int] | None
"""By class name, any integer: given in a mapping or by a function. None: the class indexes."""


def choose_label(index: RecordIndex, label: str | None) -> str:
    """The label of that name; the only one if none is given.

    Raises:
        ConfigError: there is none, or there are several.
    """
    names = sorted(index.classes)
    if label is None and len(names) == 1:
        return names[0]
    if label is None or label not in index.classes:
        raise ConfigError(
            f"label={label!r}: wanted one of {', '.join(names)}, the labels that the records of "
            f"{index.dataset}/{index.split} have."
        )
    return label


def label_values(classes: Sequence[str], labels: Labels) -> npt.NDArray[np.int64]:
    """[number of classes] the integer of each class.

    Raises:
        ConfigError: a class has none, or something that is no integer.
    """
    if labels is None:
        return np.arange(len(classes), dtype=np.int64)
    get = labels.__getitem__ if isinstance(labels, Mapping) else labels
    values = []
    for name in classes:
        try:
            values.append(operator.index(get(name)))
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"labels: class {name!r} has no integer ({type(error).__name__}: {error}); wanted one for "
                f"each of the {len(classes)} classes."
            ) from error
    return np.array(values, dtype=np.int64)
