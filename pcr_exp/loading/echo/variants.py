"""The variants of data echoing: the settings of each, and the stage that it opens.

Stages are imported only when they are opened, so composing a configuration does not load their dependencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcr_exp.config.check import require
from pcr_exp.config.components import register
from pcr_exp.config.related_methods import EchoConfig, num_echoed

if TYPE_CHECKING:
    from pcr_exp.loading.stage import Stage, StageInputs


@register("echo", "none", EchoConfig)
def open_plain(config: EchoConfig, inputs: StageInputs) -> Stage:  # noqa: ARG001
    """Open the default stage, which has no settings."""
    from pcr_exp.loading.stage import Stage

    return Stage(inputs)


@dataclass(kw_only=True, slots=True)
class ExampleBeforeConfig(EchoConfig):
    """Repeat samples as they were read: each repeat is decoded and augmented afresh."""

    name: str = "example_before"

    @property
    def decodes_repeats(self) -> bool:
        """Always True."""
        return True

    def num_samples(self, num_fresh: int) -> int:
        """Return the samples of an epoch, repeats included, for `num_fresh` fresh ones."""
        return num_echoed(num_fresh, self.factor)


@register("echo", "example_before", ExampleBeforeConfig)
def open_before(config: ExampleBeforeConfig, inputs: StageInputs) -> Stage:
    """Open the stage of `before`."""
    from pcr_exp.loading.echo.before import EchoBefore

    return EchoBefore(config, inputs)


@dataclass(kw_only=True, slots=True)
class ExampleAfterConfig(EchoConfig):
    """Repeat samples as they were augmented."""

    name: str = "example_after"

    @property
    def repeats_decoded(self) -> bool:
        """Always True."""
        return True

    def num_samples(self, num_fresh: int) -> int:
        """Return the samples of an epoch, repeats included, for `num_fresh` fresh ones."""
        return num_echoed(num_fresh, self.factor)


@register("echo", "example_after", ExampleAfterConfig)
def open_after(config: ExampleAfterConfig, inputs: StageInputs) -> Stage:
    """Open the stage of `after`."""
    from pcr_exp.loading.echo.after import EchoAfter

    return EchoAfter(config, inputs)


@dataclass(kw_only=True, slots=True)
class BatchEchoConfig(EchoConfig):
    """Repeat whole batches, each several times in a row."""

    name: str = "batch"

    def __post_init__(self) -> None:
        EchoConfig.__post_init__(self)
        require(
            self.buffer == 1,
            "echo.buffer",
            self.buffer,
            "1 with echo=batch, which repeats whole batches one after the other; samples are shuffled by "
            "echo=example_before and echo=example_after",
        )

    @property
    def repeats_decoded(self) -> bool:
        """Always True."""
        return True


@register("echo", "batch", BatchEchoConfig)
def open_batches(config: BatchEchoConfig, inputs: StageInputs) -> Stage:
    """Open the stage of `after`."""
    from pcr_exp.loading.echo.after import EchoBatches

    return EchoBatches(config, inputs)
