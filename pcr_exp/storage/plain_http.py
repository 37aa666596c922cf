"""Repeats requests to learn what obstore hides: an error's headers, or a web page in place of a file."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from urllib.error import HTTPError
from urllib.parse import urlsplit

from pcr_exp.storage.failures import require_no_page, require_record
from pcr_exp.storage.remote import request_headers
from pcr_exp.storage.retry import retry_after_s

_TIMEOUT_S = 5.0
_LASTS_S = 1.0
"""Threads whose requests fail within this time share one answer."""
_PAGE_BYTES = 512
ASKS_TO_WAIT = (429, 503)
"""Statuses that may come with Retry-After."""


class AskedToWait:
    """How long a server asks clients to wait. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until_s = 0.0
        self._asked_s = float("-inf")

    def headers(self, url: Callable[[], str | None]) -> Mapping[str, str]:
        """Return `Retry-After` from a server that just refused; `url()` gives an address there, or None."""
        with self._lock:
            now_s = time.monotonic()
            if now_s >= max(self._until_s, self._asked_s + _LASTS_S):
                address = url()
                asked_s = _retry_after_s(address) if address else None
                now_s = self._asked_s = time.monotonic()
                self._until_s = now_s + (asked_s or 0.0)
            left_s = self._until_s - now_s
        return {"Retry-After": str(left_s)} if left_s > 0 else {}


def _retry_after_s(url: str) -> float | None:
    try:
        _open(url, "HEAD").close()
    except HTTPError as error:
        with error:
            return retry_after_s(error) if error.code in ASKS_TO_WAIT else None
    except (OSError, HTTPException, ValueError):
        pass  # only the original failure matters
    return None


def check_for_page(url: str, where: str) -> None:
    """Check, by its beginning, whether a web page is in place of a file at an http address.

    Raises:
        StorageError: it is, or the answer is compressed.
    """
    with suppress(OSError, HTTPException, ValueError), _open(url, "GET") as answer:
        sent_on = answer.url if answer.url != _without_login(url) else ""
        require_record(where, dict(answer.headers.items()), sent_on)
        require_no_page(where, answer.read(_PAGE_BYTES), sent_on)


def _open(url: str, method: str) -> HTTPResponse:
    request = urllib.request.Request(_without_login(url), method=method)
    for name, value in request_headers(url).items():
        request.add_unredirected_header(name, value)  # credentials are only for this server
    answer: HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    return answer


def _without_login(url: str) -> str:
    """Return the address without user and password, which are sent in a header."""
    address = urlsplit(url)
    return address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
