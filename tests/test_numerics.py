"""Orders and pixels change only together with NUMERICS, and committed results state their NUMERICS."""

import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_batches import (
    GROUPS,
    TABLE,
    code_for_any_cpu,
    decoded_as,
    make_records,
    orders,
    pixels,
    sources,
    versions,
)

from pcr_exp.config.loader import DECODE_MODES
from pcr_exp.numerics import NUMERICS

RESULTS = Path(__file__).parents[1] / "results"
LIST = RESULTS / "numerics.csv"
A_USERS_OWN = {"demo", "runs"}
_REMEDY = (
    "If that is meant, raise NUMERICS in pcr_exp/numerics.py, say there what changed, and run "
    "`python tests/golden_batches.py`."
)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_records(tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    table = json.loads(TABLE.read_text())
    assert str(NUMERICS) in table, (
        f"NUMERICS={NUMERICS} has no fingerprints: run python tests/golden_batches.py"
    )
    found: dict[str, Any] = table[str(NUMERICS)]
    return found


def different(wanted: dict[str, str], found: dict[str, str]) -> list[str]:
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def test_orders_are_those_of_this_number(records: Path, golden: dict[str, Any]) -> None:
    changed = different(golden["orders"], orders(records))
    assert not changed, f"the order of samples is another for {', '.join(changed)}. {_REMEDY}"


def test_pixels_are_those_of_this_number(records: Path, golden: dict[str, Any]) -> None:
    changed = different(golden["pixels"], pixels(records))
    note = (
        ""
        if sources() == golden["sources"]
        else " The JPEG files themselves differ: Pillow encodes otherwise."
    )
    assert not changed, (
        f"pixels are others for {', '.join(changed)}.{note} The fingerprints were made with "
        f"{golden['versions']}; here are {versions()}. {_REMEDY}"
    )


@pytest.mark.parametrize("decode", DECODE_MODES)
@pytest.mark.parametrize("group", GROUPS)
def test_code_for_this_cpu_gives_these_pixels_to_one_grey_level(
    records: Path, decode: str, group: int
) -> None:
    """Pixels differ only where images decoded at a fraction of their size are enlarged afterwards."""
    here = decoded_as(decode, records, group)
    with code_for_any_cpu():
        anywhere = decoded_as(decode, records, group)
    for one, other in zip(here, anywhere, strict=True):
        differences = np.abs(one.images.numpy().astype(int) - other.images.numpy())
        enlarged = decode == "scaled" and group <= 2
        assert differences.max() <= enlarged
        assert np.count_nonzero(differences) <= 0.1 * differences.size


def test_fingerprints_tell_apart_what_differs(golden: dict[str, Any]) -> None:
    """Fingerprints differ, except where modes must agree: at group 10, and for baseline records."""
    found = golden["pixels"]
    for name in ("baseline", "group_10"):
        assert len({found[f"{decode}_{name}"] for decode in ("libjpeg", "unsmoothed", "scaled")}) == 1
    for name in ("group_1", "group_2"):
        assert len({found[f"{decode}_{name}"] for decode in ("libjpeg", "unsmoothed", "scaled")}) == 3
    assert len(set(golden["orders"].values())) >= len(golden["orders"]) - 1  # unbuffered echoes may agree


def committed_runs() -> Counter[tuple[str, int]]:
    """Count runs by (folder of results, NUMERICS). Manifests from before the number existed count as 1."""
    return Counter(
        (folder_with_page(path), run["manifest"].get("numerics", 1))
        for path in RESULTS.rglob("runs.json.gz")
        if path.relative_to(RESULTS).parts[0] not in A_USERS_OWN
        for run in json.loads(gzip.decompress(path.read_bytes())).values()
    )


def folder_with_page(path: Path) -> str:
    """Return the nearest folder with a README above a file; the folder of a dataset may have none."""
    folder = next(folder for folder in path.parents if (folder / "README.md").exists())
    return str(folder.relative_to(RESULTS))


def test_every_committed_number_says_its_numerics() -> None:
    """Folders without runs (loaders, codecs, quality) declare it; runs are counted in the others.

    A file or subfolder with another number has a line of its own.
    """
    with LIST.open(newline="") as file:
        listed = {(row["folder"], int(row["numerics"])): int(row["num_runs"]) for row in csv.DictReader(file)}
    folders = {page.parent.name for page in RESULTS.glob("*/README.md")} - A_USERS_OWN
    own = {name: number for name, number in listed if "/" not in name}
    assert own.keys() == folders
    apart = [(name, number) for name, number in listed if "/" in name]
    assert all((RESULTS / name).exists() and number != own[name.split("/")[0]] for name, number in apart)
    assert {key: count for key, count in listed.items() if count} == committed_runs()
    assert all(1 <= number <= NUMERICS for _, number in listed)


def test_results_of_two_numbers_are_not_mixed_in_a_folder() -> None:
    folders = Counter(folder for folder, _ in committed_runs())
    assert not [folder for folder, count in folders.items() if count > 1]
