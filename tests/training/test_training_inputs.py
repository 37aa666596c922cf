import numpy as np
import pytest
import torch
from torchvision.transforms import functional as tv

from pcr_exp.training.inputs import IMAGENET_MEAN, IMAGENET_STD, model_input


@pytest.mark.parametrize("channels_last", [True, False])
def test_it_normalises_as_torchvision_does(channels_last: bool) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 10, 3), dtype=np.uint8)
    ours = model_input(torch.from_numpy(images), torch.device("cpu"), channels_last=channels_last)
    theirs = torch.stack(
        [tv.normalize(tv.to_tensor(i), list(IMAGENET_MEAN), list(IMAGENET_STD)) for i in images]
    )
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    assert ours.is_contiguous(memory_format=memory_format)


def test_the_loader_s_batch_is_left_as_it_was() -> None:
    images = torch.full((1, 4, 4, 3), 7, dtype=torch.uint8)
    model_input(images, torch.device("cpu"), channels_last=True)
    assert (images == 7).all()
