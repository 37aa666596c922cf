"""A small HTTP server of one folder that answers range requests; what it does wrong can be chosen."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class RangeServer(ThreadingHTTPServer):
    """Serves files below `folder` and notes every request that comes."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.requests: list[tuple[str, str, str | None]] = []
        """(method, path, Range header)."""
        self.lock = threading.Lock()
        self.together: threading.Barrier | None = None
        """Answer only when so many requests are here."""
        self.delay_s = 0.0
        self.knows_ranges = True
        self.tells_size = True
        self.status: int | None = None
        """Answer everything with this instead."""
        self.cut_short = False
        """Announce the bytes, send half of them and hang up."""

    def handle_error(self, *_: object) -> None:
        """Keep quiet of clients that hang up: some tests are about that."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RangeServer

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        if self.server.together is not None:
            self.server.together.wait(10)
        time.sleep(self.server.delay_s)
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        server, asked = self.server, self.headers.get("Range")
        with server.lock:
            server.requests.append((self.command, self.path, asked))
        path = server.folder / self.path.lstrip("/")
        status = server.status or (200 if path.is_file() else 404)
        if status != 200:
            self._send(status, b"")
            return
        data = path.read_bytes()
        if asked is None or not server.knows_ranges:
            self._send(200, data, with_body=with_body)
            return
        first, last = (int(number) for number in asked.removeprefix("bytes=").split("-"))
        if first >= len(data):
            self._send(416, b"")
        else:
            self._send(206, data[first : last + 1], with_body=with_body)

    def _send(self, status: int, body: bytes, *, with_body: bool = True) -> None:
        self.send_response(status)
        if self.server.tells_size or self.command == "GET":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body and self.server.cut_short:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        elif with_body:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def range_server(folder: Path) -> Iterator[RangeServer]:
    """The server, on a free port of this machine, for as long as the block lasts."""
    server = RangeServer(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
