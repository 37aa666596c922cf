"""A proxy in front of an HTTP server that spoils a given share of the answers, in each way in turn."""

from __future__ import annotations

import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

FAULTS = ("reset", "reset in body", "cut short", "stalled", "429", "500", "503")
STALL_S = 2.0
_FRAMING = ("transfer-encoding", "content-length", "connection", "keep-alive")


class FaultyProxy(ThreadingHTTPServer):
    """Passes requests on unchanged, including signatures, and counts them."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, endpoint: str, share: float, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = urlsplit(endpoint)
        self.share = share
        self.counts: Counter[str] = Counter()
        """Requests for records, and the faults among them, by name."""
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Report no reset connections, because they are intended."""

    def fault(self, request: str) -> str | None:
        """Return the fault of a request: None for most, and for all that are not for records."""
        if not request.endswith(".pcr"):
            return None
        with self._lock:
            self.counts["requests"] += 1
            if self._random.random() >= self.share:
                return None
            fault = FAULTS[self.counts["faults"] % len(FAULTS)]
            self.counts.update({"faults": 1, fault: 1})
            return fault


@contextmanager
def faulty_proxy(endpoint: str, share: float, seed: int = 0) -> Iterator[FaultyProxy]:
    """Run a proxy in front of an endpoint within the block; `share` of the requests for records fail."""
    proxy = FaultyProxy(endpoint, share, seed)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FaultyProxy

    def setup(self) -> None:
        super().setup()
        behind = self.server.behind
        self.upstream = http.client.HTTPConnection(str(behind.hostname), behind.port, timeout=60)

    def finish(self) -> None:
        self.upstream.close()
        with suppress(OSError):
            super().finish()

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        fault = self.server.fault(urlsplit(self.path).path)
        if fault == "reset":
            self._reset()
        elif fault is not None and fault.isdigit():
            self._answer(int(fault), {}, b"")
        else:
            self._pass_on(fault)

    do_HEAD = do_GET  # noqa: N815

    def _pass_on(self, fault: str | None) -> None:
        self.upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            self.upstream.putheader(name, value)
        self.upstream.endheaders()
        answer = self.upstream.getresponse()
        body = answer.read()
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in _FRAMING}
        size = answer.getheader("Content-Length", "0") if self.command == "HEAD" else None
        self._answer(answer.status, headers, body, fault, size)

    def _answer(
        self,
        status: int,
        headers: dict[str, str],
        body: bytes,
        fault: str | None = None,
        size: str | None = None,
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", size or str(len(body)))
        self.end_headers()
        half = len(body) // 2
        self.wfile.write(body if fault is None else body[:half])
        if fault == "reset in body":
            self._reset()
        elif fault == "cut short":
            self.close_connection = True
        elif fault == "stalled":
            time.sleep(STALL_S)
            self.wfile.write(body[half:])

    def _reset(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
