"""Inputs that grow during training: their size in each epoch, and their pixels."""

from typing import Any

import torch
from torch import Tensor, nn
from torchvision.transforms.v2.functional import resize
from training_loop import Run

from pcr_exp.config.training import TrainingConfig
from pcr_exp.training.inputs import input_size, shrunk


def config(**changes: list[int]) -> TrainingConfig:
    return TrainingConfig(
        epochs=9, batch_size=4, image_size=32, eval_image_size=32, learning_rate=0.1, **changes
    )


def images(size: int) -> Tensor:
    generator = torch.Generator().manual_seed(size)
    return torch.randint(256, (3, size, size, 3), dtype=torch.uint8, generator=generator)


def test_sizes_follow_the_milestones() -> None:
    growing = config(input_sizes=[8, 16, 32], input_milestones=[2, 5])
    assert [input_size(growing, epoch) for epoch in range(7)] == [8, 8, 16, 16, 16, 32, 32]
    assert input_size(config(), 0) == 32


def test_pixels_are_those_of_torchvision() -> None:
    for size in (31, 20, 7):
        wanted = resize(images(32).permute(0, 3, 1, 2), [size, size], antialias=True).permute(0, 2, 3, 1)
        found = shrunk(images(32), size)
        assert found.dtype == torch.uint8 and found.is_contiguous()
        assert (found.int() - wanted.int()).abs().max() <= 1
    assert shrunk(images(32), 32).equal(images(32))


class Seen:
    """Records the sizes of a network's inputs in training and in evaluation."""

    def __init__(self) -> None:
        self.training: list[int] = []
        self.evaluation: list[int] = []
        self.model = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3))
        self.model.register_forward_pre_hook(self._see)

    def _see(self, model: nn.Module, inputs: tuple[Tensor]) -> None:
        (self.training if model.training else self.evaluation).append(inputs[0].shape[-1])


def test_a_run_trains_on_each_epoch_s_size_and_evaluates_at_full_size() -> None:
    def trained(saved: dict[str, Any] | None = None, stop_at: int | None = None) -> tuple[Seen, Run]:
        seen = Seen()
        run = Run(saved, model=seen.model, input_sizes=[4, 8], input_milestones=[2])
        run.stop_at = stop_at
        run.go()
        return seen, run

    whole, _ = trained()
    assert whole.training == [4] * 6 + [8] * 6, "four epochs of three updates"
    assert set(whole.evaluation) == {8}
    before, run = trained(stop_at=7)
    after, _ = trained(run.saved[-1])
    assert before.training == whole.training[:7] and after.training == whole.training[7:]
