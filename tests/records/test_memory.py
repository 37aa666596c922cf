"""The encoder's memory is bounded by the records in flight, not by the data set."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

REPO = Path(__file__).parents[2]
MIB = 2**20

PROGRAM = """
import json, sys
from pathlib import Path
from pcr_exp.datasets.sample import Sample
from pcr_exp.records.encode import encode_split

def peak():
    # getrusage's ru_maxrss would begin with what the process was that started this one.
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])

image, folder, num_images = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

def encode(name, num_images):
    encode_split(
        [Sample(str(i), image, {"number": 0}) for i in range(num_images)], {"number": ["0"]}, folder / name,
        dataset="large", split="train", images_per_record=4, on_error="fail", num_workers=2,
        progress=print_nothing,
    )

def print_nothing(done, total):
    pass

encode("warm", 1)
before = peak()
encode("all", num_images)
print(json.dumps({"grown": peak() - before}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process's memory from /proc")
def test_memory_holds_two_records_however_many_there_are(tmp_path: Path) -> None:
    """For 40 images of 3 MB in records of 4, the bound is five records and two images being transcoded."""
    noise = np.random.default_rng(0).integers(0, 256, (1024, 1024, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "JPEG", quality=98, subsampling=0)
    (tmp_path / "a.jpg").write_bytes(buffer.getvalue())
    grown: dict[int, int] = {}
    for num_images in (16, 40):
        folder = tmp_path / str(num_images)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "a.jpg"), str(folder), str(num_images)],
            capture_output=True,
            text=True,
            cwd=REPO,
            check=True,
        )
        grown[num_images] = json.loads(done.stdout)["grown"]
    record_bytes = max(path.stat().st_size for path in tmp_path.rglob("*.pcr"))
    print(record_bytes, grown)
    coefficients = 2 * 1024 * 1024 * 3 * 2
    assert record_bytes <= grown[40], "or nothing was measured"
    assert grown[40] <= 5 * record_bytes + coefficients + 16 * MIB
    assert grown[40] <= 1.25 * grown[16] + 4 * MIB
