"""Crops decoded at the smallest fraction that still shrinks, as measured in results/reduced_sizes."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skimage.data
from PIL import Image

from experiments.pcr.reduced_sizes import Reduced, compare, to_markdown
from experiments.pcr.resize_filter import scan_bytes
from experiments.results import study as rows
from pcr_exp.images.decode import open_decoder
from pcr_exp.images.libturbojpeg import find_part_decoder

PAGE = Path(__file__).parents[2] / "results" / "reduced_sizes"
BUFFER = io.BytesIO()
Image.fromarray(skimage.data.astronaut()[:240, 100:356]).save(BUFFER, "JPEG", quality=92, subsampling=0)
JPEG = BUFFER.getvalue()


def opened(group: int, size: int, left: float) -> Reduced:
    if find_part_decoder() is None:
        pytest.skip("libturbojpeg 3 is not here: nothing decodes parts at other fractions than the loader's")
    jpeg = scan_bytes(JPEG, group)
    source = open_decoder("scaled", "pcr" if group else "baseline")(jpeg, group or 1, "a photo")
    return Reduced(source, jpeg, group, size, left)


@pytest.mark.parametrize(
    ("group", "size", "left", "denominator"),
    [
        (0, 101, 1, 1),
        (0, 100, 1, 2),
        (0, 51, 1, 2),
        (0, 50, 1, 4),
        (0, 25, 1, 8),
        (0, 51, 2, 1),
        (0, 50, 2, 2),
        (5, 50, 1, 4),
        (5, 50, 2, 2),
        (2, 100, 1, 2),
        (2, 50, 1, 4),
        (1, 50, 1, 8),
    ],
)
def test_parts_are_decoded_at_the_smallest_fraction_that_still_shrinks(
    group: int, size: int, left: float, denominator: int
) -> None:
    image = opened(group, size, left)
    assert image.part(0, 0, 200, 230).denominator == denominator
    assert image.reduced == (denominator > {1: 8, 2: 2}.get(group, 1))


@pytest.mark.parametrize("denominator", [2, 4, 8])
def test_libjpegs_reduced_sizes_are_means_over_squares(denominator: int) -> None:
    """This explains the loss on the page: the resize filter then blurs pixels that are already blurred."""
    whole = opened(0, 300, 1).part(0, 0, 240, 256).pixels.astype(float)
    means = whole.reshape(240 // denominator, denominator, 256 // denominator, denominator, 3).mean((1, 3))
    reduced = opened(0, 240 // denominator, 1).part(0, 0, 240, 256).pixels
    assert np.abs(means - reduced).mean() < 0.5


def test_what_is_lost_is_of_pairs_and_its_interval_of_images() -> None:
    """One of two images loses both its crops. The bootstrap draws that image never, once or twice."""
    right, wrong = [9.0, 0.0], [0.0, 9.0]
    both = np.array([[right, wrong], [right, wrong], [right, right], [wrong, wrong]], dtype=np.float32)
    found = compare(both, np.zeros(4, dtype=int), np.array([3, 3, 7, 7]))
    assert (found["num_images"], found["crops_seen"]) == (2, 4)
    assert (found["top1"], found["agreement"]) == (75, 50)
    assert (found["lost"], found["lost_low"], found["lost_high"]) == (50, 0, 100)
    assert found["loss_added"] == pytest.approx(4.5)


def test_the_page_shows_the_tables_of_its_rows() -> None:
    page = (PAGE / "README.md").read_text()
    assert to_markdown(pd.read_csv(PAGE / "accuracy.csv")) in page
    cost = pd.read_csv(PAGE / "cost.csv")
    assert cost["repeat"].nunique() >= 5
    assert rows.to_markdown(cost) in page
