"""The step that may stand between the order of an epoch, decoding, and the batches that training gets.

On the plain way nothing does: this is it. A stage that changes something overrides what it changes, and is
registered in the group `echo`, with its settings (`echo.variants`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from pcr_exp.config.components import build
from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.loading.batch import Batch
from pcr_exp.loading.order import EpochOrder, EpochRange, Order, SampleSequence, epoch_order
from pcr_exp.loading.reads import Reads
from pcr_exp.records.index import RecordIndex

Batches = Iterator[Batch] | Generator[Batch, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInputs:
    """The facts of a loader that its stage may use."""

    index: RecordIndex
    """The index of the records."""
    first_group: int
    """The scan group that is read first; of those that a policy chooses from, the lowest."""
    num_samples: int
    """Fresh ones, per epoch and slot."""
    batch_size: int
    """Images of a slot's batch."""
    seed: int
    slots: Sequence[int]
    """Those of this process."""


class Stage:
    """The plain way: every sample once, every read the prefix of a record, batches as they are decoded."""

    num_kept_in_use = 0
    """Samples that a buffer in front of decoding holds, and with them their records."""
    highest_group = 0
    """The highest scan group that is read beyond what the policy chooses."""

    def __init__(self, inputs: StageInputs) -> None:
        self.num_batches = -(-inputs.num_samples // inputs.batch_size)
        """Per epoch."""
        self._batch_size = inputs.batch_size

    def order(self, fresh: Sequence[SampleSequence], epoch: int) -> EpochOrder:  # noqa: ARG002
        """The order in which a process reads; each of its slots has `fresh` samples to use.

        A stage that overrides this is given an epoch whole; else it is laid out as it is used, the same.
        """
        return epoch_order(fresh, self._batch_size)

    def reads(self, order: Order) -> Reads:
        """The reads of that order."""
        return Reads(order)

    def decoded_span(self, span: EpochRange) -> EpochRange:
        """The span of decoded batches that a span of the loader's batches is made of."""
        return span

    def batches(self, decoded: Iterator[Batch], span: EpochRange) -> Iterator[Batch]:  # noqa: ARG002
        """The loader's batches in `span`, of those decoded in `decoded_span(span)`."""
        return decoded


def open_stage(config: EchoConfig | None, inputs: StageInputs) -> Stage:
    """The stage that a configuration asks for: the plain way (also where it is None), or an echo.

    Raises:
        ConfigError, RecordError: the echo does not fit the records, or how processes share a batch.
    """
    stage: Stage = Stage(inputs) if config is None else build("echo", config, inputs)
    return stage
