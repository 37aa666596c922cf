"""Asks a server again for what obstore does not tell: an error's headers, and the page in place of a file."""

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
"""Threads whose requests fail within this time share an answer."""
_PAGE_BYTES = 512
ASKS_TO_WAIT = (429, 503)
"""Statuses that Retry-After goes with."""


class AskedToWait:
    """How long a server asks to be left alone. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until_s = 0.0
        self._asked_s = float("-inf")

    def headers(self, url: Callable[[], str | None]) -> Mapping[str, str]:
        """`Retry-After`, as a server that just refused has it; `url` gives an address there, if it can."""
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
        pass  # it is the failed request that counts
    return None


def look_for_page(url: str, where: str) -> None:
    """Look whether a web page lies at an http address, by its beginning.

    Raises:
        StorageError: it does.
    """
    with suppress(OSError, HTTPException, ValueError), _open(url, "GET") as answer:
        sent_on = answer.url if answer.url != _without_login(url) else ""
        require_record(where, dict(answer.headers.items()), sent_on)
        require_no_page(where, answer.read(_PAGE_BYTES), sent_on)


def _open(url: str, method: str) -> HTTPResponse:
    request = urllib.request.Request(_without_login(url), method=method)
    for name, value in request_headers(url).items():
        request.add_unredirected_header(name, value)  # credentials are for this server alone
    answer: HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    return answer


def _without_login(url: str) -> str:
    """The address without user and password, which are a header of the request."""
    address = urlsplit(url)
    return address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
