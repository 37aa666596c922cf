"""Azurite, Microsoft's emulator of Azure Blob Storage, with one container: `npm install -g azurite`."""

import base64
import hashlib
import hmac
import http.client
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

CONTAINER = "container"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The public key from Azurite's documentation."""
_PATIENCE_S = 60


@contextmanager
def azurite(workplace: Path) -> Iterator[dict[str, str]]:
    """Run the server within the block; yield a client's environment variables. Its log is in `workplace`."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("Azurite is not installed: npm install -g azurite")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "--inMemoryPersistence", "--skipApiVersionCheck", "--blobPort", str(port)]
    with (workplace / "azurite.txt").open("w") as log:
        server = subprocess.Popen(command, cwd=workplace, stdout=log, stderr=subprocess.STDOUT)
    try:
        _make_container(port)
        yield {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
        }
    finally:
        server.kill()
        server.wait(20)


def _make_container(port: int) -> None:
    """Send our own request, signed with the account's key, because object clients cannot make containers."""
    date = formatdate(usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06"
    resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    signed = "PUT" + "\n" * 12 + f"{headers}\n{resource}"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    sent = dict(line.split(":", 1) for line in headers.splitlines())
    sent |= {"Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"}
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
            connection.request("PUT", f"/{ACCOUNT}/{CONTAINER}?restype=container", headers=sent)
            assert connection.getresponse().status == 201
            return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline_s, "the server does not start"
            time.sleep(0.2)
