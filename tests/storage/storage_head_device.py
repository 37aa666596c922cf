"""A disk with one head, in real time, as a process that serves any number of others.

Run as a program with the address to listen at, MiB/s, and milliseconds per seek. It sleeps for the seek and
then for the bytes of one request at a time, in order of arrival. Meanwhile the client reads the bytes itself,
as a disk would have brought them into memory in that time.
"""

import contextlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from pcr_exp.storage.protocol import Storage, Wrapped

_MIB = 2**20


class Head:
    """Serves one request at a time."""

    def __init__(self, bytes_per_s: float, seek_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._seek_s = seek_s
        self._waiting: queue.SimpleQueue[tuple[Connection, int, float]] = queue.SimpleQueue()

    def listen(self, connection: Connection) -> None:
        """Queue a client's requests until it hangs up."""
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                self._waiting.put((connection, connection.recv(), time.perf_counter()))

    def work(self) -> None:
        """Serve queued requests forever."""
        clock_s = 0.0  # the disk's own clock, which goes on while the scheduler delays this thread
        while True:
            connection, num_bytes, came_s = self._waiting.get()
            clock_s = max(clock_s, came_s)
            clock_s = self._sleep_until(clock_s + self._seek_s)
            clock_s = self._sleep_until(clock_s + num_bytes / self._bytes_per_s)
            with contextlib.suppress(ConnectionError):
                connection.send(num_bytes)

    def _sleep_until(self, until_s: float) -> float:
        time.sleep(max(0.0, until_s - time.perf_counter()))
        return until_s


class HeadStorage(Wrapped):
    """Another storage whose reads end once the head has served them. Every thread has its own connection."""

    def __init__(self, inner: Storage, address: str) -> None:
        super().__init__(inner)
        self.reads_many = False
        self._address = address
        self._this_thread = threading.local()

    def read(self, path: str, offset: int, length: int) -> bytes:
        connection = getattr(self._this_thread, "connection", None)
        if connection is None:
            connection = self._this_thread.connection = Client(self._address)
        connection.send(length)
        data = super().read(path, offset, length)
        connection.recv()
        return data


@contextlib.contextmanager
def head_device(workplace: Path, mib_per_s: float, seek_ms: float) -> Iterator[str]:
    """Run the device within the block, and yield its address."""
    address = str(workplace / "head")
    command = [sys.executable, __file__, address, str(mib_per_s), str(seek_ms)]
    device = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert device.stdout is not None
        assert device.stdout.readline() == "ready\n", "the device did not start"
        yield address
    finally:
        device.kill()
        device.communicate()
        Path(address).unlink(missing_ok=True)


if __name__ == "__main__":
    listener = Listener(sys.argv[1], backlog=64)
    head = Head(float(sys.argv[2]) * _MIB, float(sys.argv[3]) / 1e3)
    threading.Thread(target=head.work, daemon=True).start()
    print("ready", flush=True)
    while True:
        threading.Thread(target=head.listen, args=(listener.accept(),), daemon=True).start()
