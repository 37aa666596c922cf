"""The optional step between the order of an epoch, decoding, and the batches that training receives.

The default stage here changes nothing. Other stages override what they change, and are registered in the
group `echo` with their settings (`echo.variants`).
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
    """Properties of a loader that its stage may use."""

    index: RecordIndex
    """The index of the records."""
    first_group: int
    """The scan group that is read first; for a policy, its lowest candidate."""
    num_samples: int
    """Fresh samples per epoch and micro-batch index."""
    batch_size: int
    """Images per micro-batch."""
    seed: int
    slots: Sequence[int]
    """The micro-batch indices of this process."""


class Stage:
    """The default: every sample once, every read the prefix of a record, batches as they are decoded."""

    num_buffered_samples = 0
    """Samples that a buffer before decoding holds, together with their records."""
    highest_group = 0
    """The highest scan group that the stage itself requests; 0 if it requests none."""

    def __init__(self, inputs: StageInputs) -> None:
        self.num_batches = -(-inputs.num_samples // inputs.batch_size)
        """Updates per epoch."""
        self._batch_size = inputs.batch_size

    def order(self, fresh: Sequence[SampleSequence], epoch: int) -> EpochOrder:  # noqa: ARG002
        """Return the order in which a process reads; `fresh` are the samples of its micro-batch indices.

        A stage that overrides this receives the whole epoch. Otherwise, the same order is laid out on use.
        """
        return epoch_order(fresh, self._batch_size)

    def reads(self, order: Order) -> Reads:
        """Return the reads of that order."""
        return Reads(order)

    def decoded_span(self, span: EpochRange) -> EpochRange:
        """Return the range of decoded batches that a range of the loader's batches is made of."""
        return span

    def batches(self, decoded: Iterator[Batch], span: EpochRange) -> Iterator[Batch]:  # noqa: ARG002
        """Return the loader's batches in `span`, made of those decoded in `decoded_span(span)`."""
        return decoded


def open_stage(config: EchoConfig | None, inputs: StageInputs) -> Stage:
    """Open the configured stage: an echo, or the default stage (also if `config` is None).

    Raises:
        ConfigError, RecordError: the echo does not fit the records, or the way processes share a batch.
    """
    stage: Stage = Stage(inputs) if config is None else build("echo", config, inputs)
    return stage
