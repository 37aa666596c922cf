"""How fsspec's HTTP driver is set up: ranges as asked for, any number of them at once, no endless silence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pcr_exp.errors import StorageError

CONNECT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 60.0
"""A request ends when nothing has come for this long; one that brings bytes may take as long as it needs."""


def http_options() -> dict[str, Any]:
    """Options for fsspec's driver of http:// and https://."""
    return {"get_client": _open_session, "skip_instance_cache": True}


async def _open_session(**settings: Any) -> Any:
    import aiohttp

    tracing = aiohttp.TraceConfig()
    tracing.on_request_end.append(_require_range)
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


async def _require_range(_session: Any, _context: SimpleNamespace, request: Any) -> None:
    # Called when the answer's headers are there: the whole file, sent instead, is not downloaded first.
    if "Range" in request.headers and request.response.status == 200:
        request.response.close()
        raise StorageError(
            f"{request.url}: the server ignores range requests and sends whole files. Records need a server "
            "that answers them (nginx, S3, ...); Python's http.server does not."
        )
