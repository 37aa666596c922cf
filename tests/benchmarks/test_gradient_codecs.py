"""3LC encodes and decodes faster than gradients are computed, by medians of the speed program."""

import pandas as pd
import pytest
import torch

from experiments.threelc.codec_speed import CASES, measure_codec

pytestmark = pytest.mark.slow

AT_LEAST_MB_PER_S = 200


@pytest.mark.parametrize("case", CASES)
def test_megabytes_of_float32_per_second(case: str) -> None:
    torch.set_num_threads(1)
    frame = pd.DataFrame(measure_codec(case, repeats=9))
    assert min(frame["encode_mb_per_s"].median(), frame["decode_mb_per_s"].median()) >= AT_LEAST_MB_PER_S
