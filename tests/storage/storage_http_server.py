"""A small HTTP server of one folder that answers range requests, with selectable faults."""

import gzip
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote


class RangeServer(ThreadingHTTPServer):
    """Serves files below `folder` and notes every request."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.requests: list[tuple[str, str, str | None]] = []
        """(method, path, Range header)."""
        self.lock = threading.Lock()
        self.together: threading.Barrier | None = None
        """Answer GET requests only once the barrier's number of them has arrived."""
        self.delay_s = 0.0
        self.knows_ranges = True
        self.tells_size = True
        self.status: int | None = None
        """Answer everything with this status instead."""
        self.headers: dict[str, str] = {}
        """Headers added to every answer that is treated badly."""
        self.cut_short = False
        """Announce the bytes, send half of them and hang up."""
        self.resets = False
        """Reset the connection before any answer."""
        self.resets_in_body = False
        """Announce the bytes, send half of them and reset the connection."""
        self.stall_s = 0.0
        """Announce the bytes, send half of them, stay silent for this long and reset the connection."""
        self.silent_s = 0.0
        """Wait this long before any answer."""
        self.revision = 0
        """Value of the ETag; a different value stands for different content."""
        self.only = ""
        """Only requests whose path contains this are treated badly."""
        self.flips = False
        """Send the last byte with all bits flipped."""
        self.sends_more_bytes = 0
        """Announce and send this many bytes more than requested."""
        self.is_chunked = False
        """Announce no length, and send in chunks, followed by those of `sends_more_bytes`."""
        self.gzips = False
        """Send the body compressed, whatever the client accepts."""
        self.other_range = 0
        """Number of bytes by which the stated range begins after the requested one."""
        self.num_body_bytes = 0
        """Bytes sent in bodies so far, except for bodies sent only in half."""
        self.authorizations: list[str | None] = []
        """The Authorization header of every request."""
        self.accepted_encodings: list[str | None] = []
        """The Accept-Encoding header of every request."""
        self.script: list[dict[str, Any]] = []
        """Faults of the next matching GET requests, one dict each, by the names above."""
        self.num_bad: int | None = None
        """Number of requests to which the faults above apply; None: all."""

    def handle_error(self, *_: object) -> None:
        """Report no clients that hang up, because some tests cause that."""

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

    do_PUT = do_GET  # noqa: N815

    def _answer(self, *, with_body: bool) -> None:
        server, asked = self.server, self.headers.get("Range")
        with server.lock:
            server.requests.append((self.command, self.path, asked))
            server.authorizations.append(self.headers.get("Authorization"))
            server.accepted_encodings.append(self.headers.get("Accept-Encoding"))
            concerned = server.only in self.path
            self._is_bad = concerned and (server.num_bad is None or server.num_bad > 0)
            if self._is_bad and server.num_bad:
                server.num_bad -= 1
            is_scripted = concerned and self.command == "GET" and server.script
            self._how = server.script.pop(0) if is_scripted else None
            self._is_bad = self._is_bad or self._how is not None
        time.sleep(self._wrong("silent_s") or 0)
        if self._wrong("resets"):
            self._reset()
            return
        path = server.folder / unquote(self.path).lstrip("/")
        status = self._wrong("status") or (200 if path.is_file() else 404)
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
            moved = self._wrong("other_range") or 0
            self._content_range = f"bytes {first + moved}-{min(last, len(data) - 1) + moved}/{len(data)}"
            self._send(206, data[first : last + 1], with_body=with_body)

    def _wrong(self, name: str) -> Any:
        """Return the value of one fault for this request; None or 0 if it does not apply."""
        if self._how is not None:
            return self._how.get(name)
        return getattr(self.server, name) if self._is_bad else None

    def _reset(self) -> None:
        linger_no_more = struct.pack("ii", 1, 0)  # closing sends a reset
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_no_more)
        self.close_connection = True

    def _send(self, status: int, body: bytes, *, with_body: bool = True) -> None:
        if self._wrong("gzips"):
            body = gzip.compress(body)
        num_more = self._wrong("sends_more_bytes") or 0
        self.send_response(status)
        if self._wrong("gzips"):
            self.send_header("Content-Encoding", "gzip")
        if self._wrong("is_chunked"):
            self.send_header("Transfer-Encoding", "chunked")
        elif self.server.tells_size or self.command == "GET":
            self.send_header("Content-Length", str(len(body) + num_more))
        if status in (200, 206):
            self.send_header("Last-Modified", "Sat, 01 Jan 2000 00:00:00 GMT")
            self.send_header("ETag", f'"{self._wrong("revision") or 0}"')
        if status == 206:
            self.send_header("Content-Range", self._content_range)
        if self.path.endswith(".html"):
            self.send_header("Content-Type", "text/html; charset=utf-8")
        for name, value in self.server.headers.items() if self._is_bad else ():
            self.send_header(name, value)
        self.end_headers()
        if with_body and self._wrong("flips"):
            body = body[:-1] + bytes([body[-1] ^ 0xFF])
        if with_body and self._wrong("cut_short"):
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        elif with_body and (self._wrong("resets_in_body") or self._wrong("stall_s")):
            self.wfile.write(body[: len(body) // 2])
            time.sleep(self._wrong("stall_s") or 0.05)  # lets the sent bytes arrive before the reset
            self._reset()
        elif with_body:
            self._write(body)
            for sent in range(0, num_more, 2**16):
                self._write(bytes(min(2**16, num_more - sent)))
            if self._wrong("is_chunked"):
                self.wfile.write(b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        self.server.num_body_bytes += len(data)
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if self._wrong("is_chunked") else data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def range_server(folder: Path) -> Iterator[RangeServer]:
    """Run the server on a free port of this machine within the block."""
    server = RangeServer(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
