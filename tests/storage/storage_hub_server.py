"""A small Hub with one dataset and one bucket, whose files have signed addresses on another port."""

from __future__ import annotations

import base64
import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_of_the_test"
REPO = "someone/pets"


class Hub:
    """Answers like the Hub, with the faults queued in `faults`."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        """Files of both the dataset and the bucket."""
        self.faults: deque[str] = deque()
        """Faults of the next file requests: a status, `cut`, `short`, `no size`, `limited` or `none`."""
        self.requests: list[tuple[str, str, str | None]] = []
        """(`hub` or `files`, path, Authorization)."""
        self.commits: list[list[str]] = []
        """Paths of each commit; removed ones begin with a minus."""
        self.signature = 0
        """Signature of the addresses that are currently valid."""
        self.is_private = False
        self.answers = ""
        """`other range`, `whole` or `page`: sent in place of the requested range."""
        self._servers = [
            ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, kind)) for kind in ("hub", "files")
        ]
        self.url, self.files_url = (f"http://127.0.0.1:{server.server_port}" for server in self._servers)

    def start(self) -> None:
        for server in self._servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def asked(self, kind: str) -> list[str]:
        """Return the paths requested so far."""
        return [path for of, path, _ in self.requests if of == kind]


def _handler(hub: Hub, kind: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            path = unquote(url.path)
            hub.requests.append((kind, path, self.headers.get("Authorization")))
            if kind == "files":
                self.file(path.lstrip("/"), parse_qs(url.query))
            elif hub.is_private and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.answer(401, b"", {"X-Error-Code": "RepoNotFound"})
            elif "/tree" in path:
                self.tree(path, parse_qs(url.query))
            elif not path.startswith((f"/datasets/{REPO}/resolve/main/", f"/buckets/{REPO}/resolve/")):
                self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})
            elif self.fault():
                return
            else:
                name = path.partition("/resolve/")[2]
                name = name.removeprefix("main/") if path.startswith("/datasets") else name
                self.resolve(name)

        def resolve(self, name: str) -> None:
            if name not in hub.files:
                self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            elif name.endswith(".csv"):  # small files are on the Hub itself
                self.send_range(hub.files[name], {"ETag": f'"{hash(hub.files[name])}"'})
            else:
                location = f"{hub.files_url}/{name}?signature={hub.signature}"
                tag = f'"{hash(hub.files[name])}"'
                self.answer(302, b"", {"Location": location, "X-Linked-ETag": tag})

        def file(self, name: str, query: dict[str, list[str]]) -> None:
            if self.fault():
                return
            if query["signature"] != [str(hub.signature)]:
                self.answer(403, b"<Error>Request has expired</Error>", {"Content-Type": "application/xml"})
            elif hub.answers == "page":
                self.answer(206, b"<html>log in</html>", {"Content-Type": "text/html"})
            elif hub.answers == "whole":
                self.answer(200, hub.files[name], {})
            else:
                self.send_range(hub.files[name], {})

        def send_range(self, data: bytes, headers: dict[str, str]) -> None:
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            if first >= len(data):
                self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            body = data[first : last + 1]
            shift = 1 if hub.answers == "other range" else 0
            told = f"bytes {first + shift}-{first + shift + len(body) - 1}/{len(data)}"
            self.answer(206, body, headers | {"Content-Range": told})

        def fault(self) -> bool:
            fault = hub.faults.popleft() if hub.faults else "none"
            if fault == "none":
                return False
            if fault == "cut":
                self.send_response(206)
                self.send_header("Content-Range", "bytes 0-99/1000")
                self.send_header("Content-Length", "100")
                self.end_headers()
                self.wfile.write(b"half")
                self.close_connection = True
            elif fault == "short":
                self.answer(206, b"half", {"Content-Range": "bytes 0-99/1000"})
            elif fault == "no size":
                self.answer(206, bytes(100), {"Content-Range": "bytes 0-99/*"})
            elif fault == "limited":
                self.answer(429, b"", {"RateLimit": '"api";r=0;t=0'})
            else:
                self.answer(int(fault), b"", {"Retry-After": "0"})
            return True

        def tree(self, path: str, query: dict[str, list[str]]) -> None:
            folder = path.partition("/tree")[2].strip("/")
            folder = folder.removeprefix("main").strip("/") if path.startswith("/api/datasets") else folder
            below = f"{folder}/" if folder else ""
            inside = {name: data for name, data in hub.files.items() if name.startswith(below)}
            if not inside:
                self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
                return
            recursive = query.get("recursive", ["false"])[0].lower() == "true"
            found = [
                {"type": "file", "path": name, "size": len(data), "oid": "0", "xetHash": "0", "mtime": None}
                for name, data in inside.items()
                if recursive or "/" not in name.removeprefix(below)
            ]
            folders = {
                below + name.removeprefix(below).split("/")[0]
                for name in inside
                if "/" in name.removeprefix(below)
            }
            found += [{"type": "directory", "path": name, "oid": "0", "size": 0} for name in sorted(folders)]
            self.answer(200, json.dumps(found).encode(), {"Content-Type": "application/json"})

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            hub.requests.append((kind, self.path, self.headers.get("Authorization")))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.answer(401, b"", {})
                return
            if "/preupload/" in self.path:
                asked = [file["path"] for file in json.loads(data)["files"]]
                files = [
                    {"path": p, "uploadMode": "regular", "shouldIgnore": False, "oid": None} for p in asked
                ]
                reply: Any = {"files": files}
            elif "/commit/" in self.path:
                lines = [json.loads(line) for line in data.splitlines()]
                self.commit([(line["key"], line["value"]) for line in lines[1:]])
                reply = {"success": True, "commitOid": "0" * 40, "commitUrl": f"{hub.url}/{REPO}/commit/0"}
            else:
                reply = {"errors": [], "warnings": []}
            self.answer(200, json.dumps(reply).encode(), {"Content-Type": "application/json"})

        def commit(self, operations: list[tuple[str, dict[str, str]]]) -> None:
            for key, value in operations:
                if key == "file":
                    hub.files[value["path"]] = base64.b64decode(value["content"])
                else:
                    hub.files.pop(value["path"])
            hub.commits.append([("" if key == "file" else "-") + value["path"] for key, value in operations])

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    hub.start()
    try:
        yield hub
    finally:
        hub.stop()
