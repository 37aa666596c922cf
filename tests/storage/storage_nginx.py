"""nginx serving one folder in one network namespace."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from storage_netns import Network

_PORT = 8080
_CONFIG = """
daemon off;
master_process off;
pid nginx.pid;
events {{ worker_connections 2048; }}
http {{
    log_format ranges '$request_method $status "$http_range" $uri';
    access_log access.log ranges;
    client_body_temp_path temp;
    proxy_temp_path temp;
    fastcgi_temp_path temp;
    uwsgi_temp_path temp;
    scgi_temp_path temp;
    keepalive_requests 1000000;
    server {{
        listen {address}:{port};
        root {folder};
    }}
}}
"""


@contextmanager
def nginx(network: Network, folder: Path, workplace: Path) -> Iterator[str]:
    """Run nginx within the block, and yield its URL; `workplace` gets its configuration and logs."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    workplace.mkdir()
    config = _CONFIG.format(address=network.address, port=_PORT, folder=folder)
    (workplace / "nginx.conf").write_text(config)
    command = [program, "-p", str(workplace), "-e", "error.log", "-c", "nginx.conf"]
    with (workplace / "output.log").open("w") as output:
        server = subprocess.Popen(
            network.within(network.server, *command), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_it_listens(server, workplace)
        yield f"http://{network.address}:{_PORT}"
    finally:
        server.terminate()
        server.wait(10)


def requests_served(workplace: Path) -> list[str]:
    """Return one line per request: method, status, range, path."""
    return (workplace / "access.log").read_text().splitlines()


def _wait_until_it_listens(server: subprocess.Popen[bytes], workplace: Path) -> None:
    deadline = time.monotonic() + 10
    while not (workplace / "nginx.pid").exists() or not (workplace / "nginx.pid").read_text():
        told = (workplace / "output.log").read_text()
        assert server.poll() is None, f"nginx ended: {told}"
        assert time.monotonic() < deadline, f"nginx does not start: {told}"
        time.sleep(0.02)
