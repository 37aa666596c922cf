import numpy as np
import pytest
import torch
from torchvision.transforms import functional as tv

from pcr_exp.training.inputs import IMAGENET, Normalization, model_input


@pytest.mark.parametrize("channels_last", [True, False])
def test_it_normalises_as_torchvision_does(channels_last: bool) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 10, 3), dtype=np.uint8)
    ours = model_input(torch.from_numpy(images), torch.device("cpu"), channels_last=channels_last)
    theirs = torch.stack(
        [tv.normalize(tv.to_tensor(i), list(IMAGENET.mean), list(IMAGENET.std)) for i in images]
    )
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    assert ours.is_contiguous(memory_format=memory_format)


def test_the_loader_s_batch_is_left_as_it_was() -> None:
    images = torch.full((1, 4, 4, 3), 7, dtype=torch.uint8)
    model_input(images, torch.device("cpu"), channels_last=True)
    assert (images == 7).all()


def test_imagenet_s_normalisation_is_what_it_was_bit_for_bit() -> None:
    """Every published run used this arithmetic."""
    images = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (2, 9, 7, 3), dtype=np.uint8))
    mean = torch.tensor((0.485, 0.456, 0.406)).mul_(255).view(1, 3, 1, 1)
    std = torch.tensor((0.229, 0.224, 0.225)).mul_(255).view(1, 3, 1, 1)
    before = images.permute(0, 3, 1, 2).float().sub_(mean).div_(std)
    assert torch.equal(model_input(images, torch.device("cpu"), channels_last=True), before)


def test_efficientnet_lite_s_normalisation_can_be_said() -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1).repeat(1, 1, 1, 3)
    lite = Normalization((127 / 255,) * 3, (128 / 255,) * 3)
    ours = model_input(images, torch.device("cpu"), channels_last=False, normalization=lite)
    torch.testing.assert_close(ours, (images.permute(0, 3, 1, 2).float() - 127) / 128)
