"""Retries HTTP requests that failed in transit, with tenacity's backoff and the server's Retry-After."""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import TypeVar

import tenacity

from pcr_exp.errors import StorageError
from pcr_exp.redaction import redacted_text
from pcr_exp.storage.failures import in_short, often
from pcr_exp.storage.protocol import is_opening
from pcr_exp.storage.throttle import sleep

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

NUM_ATTEMPTS = 7
"""Together they outlast a server outage of half a minute."""
BACKOFF_S = 0.5
"""Seconds before the second attempt, doubled before each further one; up to BACKOFF_S is added at random."""
PATIENCE_S = 120.0
"""No attempt begins later than this many seconds after the first."""
NUM_ATTEMPTS_OPENING = 2
"""Attempts at a request that is refused immediately while records are being opened."""
_QUIET_S = 5.0
"""At most one warning is logged in this time, however many threads warn."""
_REQUEST_TIMEOUT, _TOO_EARLY, _TOO_MANY_REQUESTS = 408, 425, 429
_NOT_IMPLEMENTED, _VERSION_NOT_SUPPORTED = 501, 505
_UNREACHABLE = (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH)


class GaveUpError(Exception):
    """The last of several attempts failed too; its error is the cause."""

    def __init__(self, error: BaseException, num_attempts: int, elapsed_s: float) -> None:
        super().__init__(str(error))
        self.error = error
        self.num_attempts = num_attempts
        self.elapsed_s = elapsed_s


def last_failure(error: Exception) -> tuple[Exception, str]:
    """Return the failure itself (of `GaveUpError`, the last one), and a text on how often it was met."""
    if not isinstance(error, GaveUpError):
        return error, ""
    reason = error.error
    assert isinstance(reason, Exception)
    asked_s = retry_after_s(reason_of(reason))
    return reason, often(error.num_attempts, error.elapsed_s, asked_s)


class Retrying:
    """Retries calls, and counts the retries. Thread-safe."""

    def __init__(
        self,
        passes: Callable[[BaseException], bool] | None = None,
        refuses: Callable[[BaseException], bool] | None = None,
    ) -> None:
        """`passes(error)` returns whether the same call may succeed a little later; default: `is_passing`.

        `refuses(error)` returns whether no server is there to answer; default: `is_refusal`.
        """
        self._passes = passes or is_passing
        self._refuses = refuses or is_refusal
        self.num_retries = 0
        """Attempts beyond the first, over all calls."""
        self._lock = threading.Lock()
        self._told_s: float | None = None

    def call(self, attempt: Callable[[], Answer], what: str) -> Answer:
        """Return the result of `attempt`, retrying after temporary errors; `what` names it in the log.

        Any other error is raised immediately and unchanged.

        Raises:
            GaveUpError: it failed NUM_ATTEMPTS times, or the next attempt would begin after PATIENCE_S. Or it
                was refused twice while records were being opened (`storage.protocol.opening`).
            ReadCancelledError: this thread's `interruptible` event was set while it waited.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._passes),
            wait=_wait_s,
            stop=self._gives_up,
            before_sleep=lambda state: self._log_wait(state, what),
            sleep=sleep,
        )
        try:
            return retrying(attempt)
        except tenacity.RetryError as error:
            state = error.last_attempt
            failure = state.exception()
            assert failure is not None
            elapsed_s = retrying.statistics.get("delay_since_first_attempt", 0.0)
            raise GaveUpError(failure, state.attempt_number, elapsed_s) from failure

    def _gives_up(self, state: tenacity.RetryCallState) -> bool:
        too_late = tenacity.stop_before_delay(PATIENCE_S)(state)
        return too_late or state.attempt_number >= self._num_attempts(_failure(state))

    def _num_attempts(self, error: BaseException) -> int:
        return NUM_ATTEMPTS_OPENING if is_opening() and self._refuses(error) else NUM_ATTEMPTS

    def _log_wait(self, state: tenacity.RetryCallState, what: str) -> None:
        now_s = time.monotonic()
        error = _failure(state)
        with self._lock:
            self.num_retries += 1
            if self._num_attempts(error) == NUM_ATTEMPTS_OPENING:
                return  # the outcome follows soon
            if self._told_s is not None and now_s - self._told_s < _QUIET_S:
                return
            self._told_s = now_s
        log.warning(
            "%s: %s. Attempt %d of %d follows in %.1f s (%d repeated so far).",
            what,
            redacted_text(in_short(error)),
            state.attempt_number + 1,
            NUM_ATTEMPTS,
            state.upcoming_sleep,
            self.num_retries,
        )


def reason_of(error: BaseException) -> BaseException:
    """Return an error's cause. fsspec reports a failed size query as a missing file, and keeps the cause."""
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        return error.__cause__
    return error


def is_passing(error: BaseException) -> bool:
    """Whether the same aiohttp request may succeed a little later.

    True for status 408, 425, 429 and 5xx (except 501 and 505), for connections that are refused, reset or
    silent, and for bodies that end early.
    """
    import aiohttp

    reason = reason_of(error)
    status = getattr(reason, "status", None)
    if isinstance(reason, StorageError) or is_unknown_name(reason):
        return False
    if isinstance(status, int) and status:
        return is_passing_status(status)
    if isinstance(reason, aiohttp.ClientSSLError | aiohttp.InvalidURL):
        return False
    broken = (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, ConnectionError, TimeoutError)
    return isinstance(reason, broken)


def is_passing_status(status: int) -> bool:
    """Whether a server that answers with this status may answer differently a little later."""
    if status in (_REQUEST_TIMEOUT, _TOO_EARLY, _TOO_MANY_REQUESTS):
        return True
    return 500 <= status < 600 and status not in (_NOT_IMPLEMENTED, _VERSION_NOT_SUPPORTED)


def is_unknown_name(error: BaseException) -> bool:
    """Whether DNS does not know the server's name (and not just temporarily)."""
    cause = getattr(error, "os_error", None)
    return isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN


def is_refused(error: BaseException) -> bool:
    """Whether the machine is reachable, but its port is closed."""
    return getattr(error, "errno", None) == errno.ECONNREFUSED


def is_refusal(error: BaseException) -> bool:
    """Whether no server is there to answer: the port is closed, or the machine or its name is not found."""
    reason = reason_of(error)
    is_name = isinstance(getattr(reason, "os_error", None), socket.gaierror)
    return is_name or getattr(reason, "errno", None) in _UNREACHABLE


def retry_after_s(error: BaseException) -> float | None:
    """Seconds that the server asks to wait (Retry-After: a number or a date); None if it does not ask."""
    headers = getattr(error, "headers", None)
    asked = headers.get("Retry-After") if headers else None
    if asked is None:
        return None
    try:
        return max(0.0, float(asked))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
    except ValueError:
        return None


def _wait_s(state: tenacity.RetryCallState) -> float:
    backoff = tenacity.wait_exponential(multiplier=BACKOFF_S) + tenacity.wait_random(0, BACKOFF_S)
    return max(backoff(state), retry_after_s(reason_of(_failure(state))) or 0.0)


def _failure(state: tenacity.RetryCallState) -> BaseException:
    assert state.outcome is not None
    failure = state.outcome.exception()
    assert failure is not None
    return failure
