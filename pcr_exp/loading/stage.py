"""What may stand between the order of an epoch, decoding, and the batches that training gets.

On the plain way nothing does: this is it. A stage that changes something (`echo/`) overrides what it changes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from pcr_exp.loading.batch import Batch
from pcr_exp.loading.order import EpochOrder, Span, Uses, epoch_order
from pcr_exp.loading.tasks import Reads
from pcr_exp.records.reader import RecordSet

Batches = Iterator[Batch] | Generator[Batch, None, None]


class Stage:
    """The plain way: every sample once, every read the prefix of a record, batches as they are decoded."""

    num_kept_in_use = 0
    """Samples that a buffer in front of decoding holds, and with them their records."""
    highest_group = 0
    """The highest scan group that is read beyond what the policy chooses."""

    def __init__(self, *, num_samples: int, batch_size: int) -> None:
        """`num_samples` are fresh, per epoch and slot."""
        self.num_batches = -(-num_samples // batch_size)
        """Per epoch."""
        self._batch_size = batch_size

    def order(self, fresh: Sequence[Uses], epoch: int) -> EpochOrder:  # noqa: ARG002
        """The order in which a process reads; each of its slots has `fresh` samples to use."""
        return epoch_order(fresh, self._batch_size)

    def reads(self, records: RecordSet, order: EpochOrder) -> Reads:
        """The reads of that order."""
        return Reads(records, order)

    def decoded_span(self, span: Span) -> Span:
        """The span of decoded batches that a span of the loader's batches is made of."""
        return span

    def batches(self, decoded: Iterator[Batch], span: Span) -> Iterator[Batch]:  # noqa: ARG002
        """The loader's batches in `span`, of those decoded in `decoded_span(span)`."""
        return decoded
