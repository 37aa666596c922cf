"""A disk with one head, simulated event by event, as a reference for the throttle's arithmetic.

It shares nothing with the throttle. It has a clock, a queue at the head, and readers that send the next
request as soon as the last is answered.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class DiskHead:
    """Serves one request at a time: the head seeks for `seek_s`, then transfers bytes at `bytes_per_s`.

    A request reaches the disk `latency_s` after it was made, however many others are on their way.
    """

    bytes_per_s: float
    seek_s: float
    latency_s: float = 0.0
    now_s: float = 0.0
    _events: list[tuple[float, int, str, int]] = field(default_factory=list)
    _queue: deque[int] = field(default_factory=deque)
    _busy: bool = False
    _num_events: int = 0

    def serve(self, sizes_by_reader: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return each reader's answer times in seconds. A reader has one request at a time."""
        left = [deque(sizes) for sizes in sizes_by_reader]
        answered: list[list[float]] = [[] for _ in left]
        for reader, sizes in enumerate(left):
            if sizes:
                self._at(self.now_s + self.latency_s, "arrive", reader)
        while self._events:
            self.now_s, _, what, reader = heapq.heappop(self._events)
            if what == "arrive":
                self._queue.append(reader)
            elif what == "found":  # the head has arrived: the bytes transfer
                self._at(self.now_s + left[reader][0] / self.bytes_per_s, "answered", reader)
            else:
                self._busy = False
                left[reader].popleft()
                answered[reader].append(self.now_s)
                if left[reader]:
                    self._at(self.now_s + self.latency_s, "arrive", reader)
            if not self._busy and self._queue:
                self._busy = True
                self._at(self.now_s + self.seek_s, "found", self._queue.popleft())
        return answered

    def _at(self, time_s: float, what: str, reader: int) -> None:
        # Simultaneous events come in the order in which they were scheduled.
        self._num_events += 1
        heapq.heappush(self._events, (time_s, self._num_events, what, reader))
