"""Error accumulation: what a message leaves out is added to the tensor's next values (3LC, section 3.1)."""

from __future__ import annotations

import math

from torch import Tensor

from pcr_exp.gradients.codec import Codec


class Feedback:
    """The sender of one tensor: a codec, and what its messages have left out so far."""

    def __init__(self, codec: Codec) -> None:
        """Begin with nothing left out. Codecs without feedback are passed through."""
        self.codec = codec
        self.residual: Tensor | None = None
        """float32 [n]; None before the first message, and always for a codec without feedback."""

    def encode(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the message, and what it will decode to.

        For finite values, sent + new residual = values + old residual, exactly for 3LC and else up to
        float32's rounding. If the sum is not finite, the message says so and the residual stays as it was:
        one bad update is lost, not all that follow.

        Args:
            values: float32 [n], the same n every time; not changed.
        """
        if not self.codec.feedback:
            return self.codec.encode(values)
        total = values.clone() if self.residual is None else values + self.residual
        message, sent = self.codec.encode(total)
        # By a codec's contract all of it is NaN, or nothing.
        if not (len(sent) and math.isnan(sent[0])):
            self.residual = total.sub_(sent)
        return message, sent
