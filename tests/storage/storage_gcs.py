"""In-memory server of Google Cloud Storage's XML API for objects, as no such server installs by name.

It follows the reference (cloud.google.com/storage/docs/xml-api). A PUT with `x-goog-if-generation-match: 0`
creates an object if there is none; with another number it replaces that generation. Otherwise it answers 412.
Multipart uploads are those of S3. Clients find it by STORAGE_EMULATOR_HOST, like every emulator.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"
_PAGE = 3
"""Objects per page of a listing, so that a few objects take several pages."""
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class _Object(NamedTuple):
    data: bytes
    generation: int


class _Bucket:
    """Objects by name, and uploads in progress."""

    def __init__(self) -> None:
        self.objects: dict[str, _Object] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.generations = itertools.count(1)
        self.lock = threading.Lock()

    def put(self, name: str, data: bytes, wanted: str | None) -> _Object | None:
        """Store and return a new object; return None if the current generation is not `wanted`."""
        with self.lock:
            there = self.objects.get(name)
            if wanted is not None and int(wanted) != (there.generation if there else 0):
                return None
            self.objects[name] = _Object(data, next(self.generations))
            return self.objects[name]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: _Bucket

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: bytes = b"", found: _Object | None = None, **headers: str) -> None:
        if found is not None:
            headers["ETag"] = f'"{hashlib.md5(found.data).hexdigest()}"'
            headers |= {"x-goog-generation": str(found.generation), "Last-Modified": formatdate(usegmt=True)}
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _asked(self) -> tuple[str, dict[str, str], bytes]:
        address = urlsplit(self.path)
        _, _, name = unquote(address.path).lstrip("/").partition("/")
        query = {key: values[0] for key, values in parse_qs(address.query, keep_blank_values=True).items()}
        return name, query, self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_PUT(self) -> None:
        name, query, body = self._asked()
        if "partNumber" in query:
            self.bucket.uploads[query["uploadId"]][int(query["partNumber"])] = body
            self._answer(200, ETag=f'"{hashlib.md5(body).hexdigest()}"')
            return
        made = self.bucket.put(name, body, self.headers.get("x-goog-if-generation-match"))
        self._answer(200 if made else 412, found=made)

    def do_POST(self) -> None:
        name, query, _ = self._asked()
        if "uploads" in query:
            upload = f"upload-{next(self.bucket.generations)}"
            self.bucket.uploads[upload] = {}
            text = f"<UploadId>{upload}</UploadId>"
            self._answer(
                200, f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>".encode()
            )
            return
        parts = self.bucket.uploads.pop(query["uploadId"])
        made = self.bucket.put(name, b"".join(parts[number] for number in sorted(parts)), None)
        assert made is not None
        text = f"<ETag>{hashlib.md5(made.data).hexdigest()}</ETag>"
        body = f"<CompleteMultipartUploadResult>{text}</CompleteMultipartUploadResult>"
        self._answer(200, body.encode(), made)

    def do_DELETE(self) -> None:
        name, _, _ = self._asked()
        self._answer(204 if self.bucket.objects.pop(name, None) else 404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name, query, _ = self._asked()
        if not name:
            self._answer(200, self._listing(query).encode())
            return
        found = self.bucket.objects.get(name)
        asked = _RANGE.fullmatch(self.headers.get("Range") or "")
        if found is None:
            self._answer(404)
        elif asked is None:
            self._answer(200, found.data, found)
        elif int(asked[1]) >= len(found.data):
            self._answer(416)
        else:
            last = min(int(asked[2] or len(found.data)), len(found.data) - 1)
            span = f"bytes {asked[1]}-{last}/{len(found.data)}"
            self._answer(206, found.data[int(asked[1]) : last + 1], found, **{"Content-Range": span})

    def _listing(self, query: dict[str, str]) -> str:
        names = sorted(name for name in self.bucket.objects if name.startswith(query.get("prefix", "")))
        names = [name for name in names if name > query.get("continuation-token", "")]
        text = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(self.bucket.objects[name].data)}</Size>"
            '<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"0"</ETag></Contents>'
            for name in names[:_PAGE]
        )
        if len(names) > _PAGE:
            text += f"<NextContinuationToken>{escape(names[_PAGE - 1])}</NextContinuationToken>"
        return f"<ListBucketResult>{text}</ListBucketResult>"


@contextmanager
def gcs() -> Iterator[str]:
    """Run the server within the block, and yield the value for STORAGE_EMULATOR_HOST."""
    handler = type("Handler", (_Handler,), {"bucket": _Bucket()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)
