"""Rate of decoding and cropping alone on the same cores: an upper bound for the loader.

The code of the loader's workers repeatedly decodes and crops files in memory, in as many processes. Nothing
is read, joined, handed over or waited for.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from pcr_exp.config.scan import scan_of
from pcr_exp.errors import LoaderError, PcrExpError
from pcr_exp.loading.batch import EncodedImages, Files
from pcr_exp.loading.shared_buffers import SharedBuffer
from pcr_exp.loading.transform import train_transform
from pcr_exp.loading.workers import START_METHOD, BatchDecoder, prepare_process
from pcr_exp.measuring.throughput.job import Job
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage

_WARM_BATCHES = 2


@dataclass(frozen=True, slots=True)
class Bound:
    """Combined rate of processes that only decode and crop."""

    images_per_s: float
    cpu_s_per_image: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def decode_alone(folder: Path, job: Job, measure_s: float) -> Bound:
    """Decode and crop for about `measure_s` after start-up, in as many processes as the job has workers.

    Raises:
        RecordError: an image cannot be decoded.
        LoaderError: a process died.
    """
    count = max(1, job.settings.num_workers)
    context = multiprocessing.get_context(START_METHOD)
    files = _files(folder, job.loader)
    begin = context.Barrier(count)
    ours, processes = [], []
    for number in range(count):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(  # type: ignore[attr-defined]  # of any context
            target=_decode_for, args=(sender, begin, files, folder, job, number, measure_s), daemon=True
        )
        process.start()
        sender.close()
        ours.append(receiver)
        processes.append(process)
    try:
        found = list(_as_they_come(ours))
    finally:
        for process in processes:
            process.kill()  # it might wait at the barrier for ever
            process.join()
    rates = [num_images / wall_s for num_images, wall_s, _ in found]
    return Bound(sum(rates), sum(cpu_s for *_, cpu_s in found) / sum(num_images for num_images, *_ in found))


def _as_they_come(receivers: Sequence[Connection]) -> Iterator[tuple[int, float, float]]:
    """Yield (images, wall seconds, CPU seconds) of each process. If one fails, raise: others wait for it."""
    waiting = list(receivers)
    while waiting:
        for receiver in wait(waiting):
            assert isinstance(receiver, Connection)
            try:
                result = receiver.recv()
            except EOFError:
                raise LoaderError(
                    "a process that decodes alone died. Is there memory for one per worker? Lower "
                    "loader.num_workers, or set bound=false."
                ) from None
            if isinstance(result, PcrExpError):
                raise result
            waiting.remove(receiver)
            yield result


def _decode_for(
    sender: Connection,
    begin: Any,
    files: list[bytes],
    folder: Path,
    job: Job,
    number: int,
    measure_s: float,
) -> None:
    prepare_process()
    scan = scan_of(job.loader)
    transform = train_transform(job.crops)
    decode = _open(folder, scan.encoding).open_decoder(job.decode)
    decoder = BatchDecoder(transform, decode=decode, seed=job.seed)
    batches = list(_batches(files, decoder, job, scan.group))
    try:
        for images in batches[:_WARM_BATCHES]:
            decoder(images)
    except PcrExpError as error:
        sender.send(error)
        return
    begin.wait()
    num_decoded, at = 0, number
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    while num_decoded == 0 or time.perf_counter() - started_s < measure_s:
        images = replace(batches[at % len(batches)], epoch=at // len(batches))  # other crops each time
        decoder(images)
        num_decoded += len(images.files)
        at += 1
    sender.send((num_decoded, time.perf_counter() - started_s, time.process_time() - started_cpu_s))


def _batches(files: list[bytes], decoder: BatchDecoder, job: Job, group: int) -> Iterator[EncodedImages]:
    """Yield batches as workers receive them: files in a shared buffer, after the space for the pixels."""
    for index, start in enumerate(range(0, len(files), job.batch_size)):
        room = decoder.room(job.batch_size)
        images = EncodedImages(Files(SharedBuffer(*room, deque())), epoch=0, slot=0, index=index)
        for file in files[start : start + job.batch_size]:
            images.files.add([file])
            images.groups.append(group)
            images.names.append("an image")
        yield images


@lru_cache(maxsize=1)
def _files(folder: Path, loader: str) -> list[bytes]:
    """Return all images as JPEG files."""
    scan = scan_of(loader)
    records = _open(folder, scan.encoding)
    prefixes = (records.read_prefix(record, scan.group) for record in range(len(records.index.records)))
    return [prefix.encoded(i) for prefix in prefixes for i in range(len(prefix))]


def _open(folder: Path, encoding: str) -> RecordSet:
    return RecordSet(LocalStorage(folder), encoding)
