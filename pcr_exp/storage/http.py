"""How fsspec's HTTP driver is set up: ranges as asked for, any number of them at once, no endless silence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pcr_exp.errors import StorageError

CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 60.0
"""A request ends when nothing has come for this long; one that brings bytes may take as long as it needs."""
_SUCCESSES = (200, 203, 206)


def http_options() -> dict[str, Any]:
    """Options for fsspec's driver of http:// and https://."""
    return {"get_client": _open_session, "skip_instance_cache": True}


async def _open_session(**settings: Any) -> Any:
    import aiohttp

    tracing = aiohttp.TraceConfig()
    tracing.on_request_end.append(_require_records)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_TIMEOUT_S
        ),
        # Compressed on the way, a range would be of other bytes than those asked for.
        headers={"Accept-Encoding": "identity"},
        trace_configs=[tracing],
        **settings,
    )


async def _require_records(_session: Any, _context: SimpleNamespace, request: Any) -> None:
    # Called when the answer's headers are there: the whole file, sent instead, is not downloaded first.
    response = request.response
    if response.status in _SUCCESSES and response.headers.get("Content-Type", "").startswith("text/html"):
        response.close()
        asked = response.history[0].url if response.history else request.url
        sent_on = f" (it was sent on to {response.url})" if response.history else ""
        raise StorageError(
            f"{asked}: the server answers {response.status} with a web page and no record{sent_on}: a login "
            "page, or one that says what is wrong. Open the address in a browser, and check records.root."
        )
    if "Range" in request.headers and response.status == 200:
        response.close()
        raise StorageError(
            f"{request.url}: the server ignores range requests and sends whole files. Records need a server "
            "that answers them (nginx, S3, ...); Python's http.server does not."
        )
