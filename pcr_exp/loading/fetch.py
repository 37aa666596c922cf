"""Read-ahead: threads that read in order, within a budget."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from pcr_exp.errors import LoaderError
from pcr_exp.storage.throttle import interruptible

Request = TypeVar("Request")
Result = TypeVar("Result")

_JOIN_S = 5.0


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class Fetcher(Generic[Request, Result]):
    """Calls `read(request)` for every request in `num_threads` threads; results are taken in order.

    Budget: a read begins only while fewer than `ahead` reads lie between it and the last one that was wanted
    or taken. Wanted reads may always begin, so `take` cannot deadlock. Memory therefore holds at most the
    wanted results and `ahead` more, however long nobody takes any.
    """

    def __init__(
        self,
        read: Callable[[Request], Result],
        requests: Iterator[Request | None],
        *,
        num_threads: int,
        ahead: int,
        timeout_s: float | None = None,
        describe: Callable[[Request], str] = str,
        read_many: Callable[[list[Request]], Sequence[Result]] | None = None,
        at_once: int = 1,
    ) -> None:
        """`requests` is advanced when a read begins, by one thread at a time.

        If it yields None, the next request is not known yet; it is advanced again when more is wanted.

        `describe` names what a request reads, for the error if no read ends within `timeout_s` in `take`.

        With `read_many`, a thread makes up to `at_once` requests in one call, as far as they may begin. If
        that call raises anything, the thread makes each request individually.
        """
        self._read = read
        self._requests = requests
        self._ahead = ahead
        self._timeout_s = timeout_s
        self._describe = describe
        self._read_many = read_many
        self._at_once = at_once if read_many is not None else 1
        # Two conditions on one lock, so that an event for one thread does not wake hundreds.
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._budget = threading.Condition(lock)
        self._closing = threading.Event()
        self._results: dict[int, Result | _Failure] = {}
        self._num_begun = 0
        self._num_taken = 0
        self._num_wanted = 0
        self._in_flight: dict[int, Request] = {}
        self._busy_s = 0.0
        self._busy_since_s = 0.0
        self._paused = False
        self._held = False
        self._ended = False
        self._threads = [
            threading.Thread(target=self._run, name=f"pcr-exp-fetch-{i}", daemon=True)
            for i in range(num_threads)
        ]

    @property
    def busy_s(self) -> float:
        """Seconds in which at least one read was in flight."""
        with self._changed:
            return self._busy_s + (time.monotonic() - self._busy_since_s if self._in_flight else 0.0)

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def want(self, count: int) -> bool:
        """Let the next `count` reads begin. Return whether `take(count)` would return at once."""
        with self._changed:
            self._want(count)
            return self._arrived(count)

    def take(self, count: int) -> list[Result]:
        """Return the next `count` results, waiting for them if necessary.

        Raises:
            LoaderError: paused or closed before they arrived, no read ended within `timeout_s`, or the next
                request is not known.
            Exception: whatever `read` or `requests` raised for the first of them that failed.
        """
        with self._changed:
            self._want(count)
            self._await(lambda: self._arrived(count) or self._is_stalled())
            if self._closing.is_set():
                raise LoaderError("a batch was requested, but the loader has been closed.")
            numbers = range(self._num_taken, self._num_taken + count)
            for number in numbers:
                result = self._results.get(number)
                if isinstance(result, _Failure):
                    raise result.error
                if result is None:
                    raise LoaderError(
                        "a batch was requested, but the loader is paused: call resume() first."
                        if self._paused
                        else "a batch was requested before the scan policy had decided which scan group to "
                        "read. In a training loop of your own, call loader.observe(loss=...) after "
                        "every batch, including the last one of an epoch, and do not skip epochs with "
                        "set_epoch(): the policy follows training, so restore the loader's state with "
                        "load_state_dict(). Otherwise this is a defect of the policy: please report it."
                    )
            self._num_taken += count
            return [self._results.pop(number) for number in numbers]  # type: ignore[misc]

    def pause(self) -> None:
        """Start no new reads; return when those in flight have ended.

        Raises:
            LoaderError: none of them ended within `timeout_s`.
        """
        with self._changed:
            self._paused = True
            self._changed.notify_all()
            self._await(lambda: not self._in_flight)

    def resume(self) -> None:
        """Let reads begin again."""
        with self._changed:
            self._paused = self._held = False
            self._budget.notify_all()

    def close(self) -> None:
        """End all threads. Throttled waits are cut short; a real read that hangs is abandoned after 5 s."""
        with self._changed:
            self._closing.set()
            self._changed.notify_all()
            self._budget.notify_all()
        deadline_s = time.monotonic() + _JOIN_S
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline_s - time.monotonic()))

    def _want(self, count: int) -> None:
        more = self._num_taken + count - self._num_wanted
        if more > 0:
            self._num_wanted += more
        if self._held:
            self._held = False
            self._budget.notify_all()
        elif more > 0:
            self._budget.notify(math.ceil(more / self._at_once))

    def _await(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition. The timeout restarts with every read that ends."""
        while not condition():
            heard = self._changed.wait(self._timeout_s)
            if not heard and not condition():
                oldest = min(self._in_flight, default=None)
                what = "a read" if oldest is None else self._describe(self._in_flight[oldest])
                raise LoaderError(
                    f"no read has ended for {self._timeout_s:g} s, and training waits for {what}. Check that "
                    "the storage can be reached; if it is only slow, raise the loader's timeout_s."
                )

    def _arrived(self, count: int) -> bool:
        """Return whether the next `count` results are there, or all results up to a failure."""
        for number in range(self._num_taken, self._num_taken + count):
            result = self._results.get(number)
            if result is None:
                return False
            if isinstance(result, _Failure):
                return True
        return True

    def _is_stalled(self) -> bool:
        return self._closing.is_set() or ((self._paused or self._held) and not self._in_flight)

    def _run(self) -> None:
        with interruptible(self._closing):
            while begun := self._begin():
                # Not bound to a name: the thread would hold the result while it waits for its next turn.
                self._end(begun[0][0], self._attempt_all([request for _, request in begun]))

    def _attempt_all(self, requests: list[Request]) -> list[Result | _Failure]:
        if len(requests) > 1 and self._read_many is not None:
            with suppress(Exception):  # individual calls show which request fails
                return list(self._read_many(requests))
        return [self._attempt(request) for request in requests]

    def _attempt(self, request: Request) -> Result | _Failure:
        try:
            return self._read(request)
        # Pass any error on to the caller that takes this result: a thread must not die silently.
        except BaseException as error:
            return _Failure(error)

    def _begin(self) -> list[tuple[int, Request]]:
        """Return the next requests that may begin, with their numbers; none at the end."""
        with self._changed:
            begun: list[tuple[int, Request]] = []
            while not begun and not self._is_over():
                self._budget.wait_for(lambda: self._is_over() or self._fills_a_call())
                while len(begun) < self._at_once and not self._is_over() and self._may_begin():
                    number = self._num_begun
                    request = self._next_request(number)
                    if request is not None:
                        self._num_begun += 1
                        if not self._in_flight:
                            self._busy_since_s = time.monotonic()
                        self._in_flight[number] = request
                        begun.append((number, request))
            if self._at_once > 1 and self._fills_a_call():
                self._budget.notify()  # only one thread was notified per call's worth of room
            return begun

    def _is_over(self) -> bool:
        return self._closing.is_set() or self._ended

    def _next_request(self, number: int) -> Request | None:
        try:
            request = next(self._requests)
            self._held = request is None
        except StopIteration:
            request, self._ended = None, True
        except BaseException as error:
            self._results[number] = _Failure(error)
            request, self._ended = None, True
        if self._ended:
            self._budget.notify_all()
        if request is None:
            self._changed.notify_all()
        return request

    def _may_begin(self) -> bool:
        return not (self._paused or self._held) and self._num_begun < self._num_wanted + self._ahead

    def _fills_a_call(self) -> bool:
        """Return whether a full call of requests may begin, or one that is already wanted.

        If a thread began the few requests that the last `take` made room for, every call would be small, and
        the other notified threads would find nothing to do.
        """
        room = self._num_wanted + self._ahead - self._num_begun
        full = room >= min(self._at_once, self._ahead)
        return self._may_begin() and (full or self._num_begun < self._num_wanted)

    def _end(self, first: int, results: list[Result | _Failure]) -> None:
        """Store the results of consecutive requests, numbered from `first` on."""
        with self._changed:
            for number, result in enumerate(results, start=first):
                self._results[number] = result
                del self._in_flight[number]
                if isinstance(result, _Failure):
                    self._ended = True
                    self._budget.notify_all()
            if not self._in_flight:
                self._busy_s += time.monotonic() - self._busy_since_s
            self._changed.notify_all()
