"""Small models that save the same kinds of tensors for backward as large ones, and one update of them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """A block whose two branches begin with a convolution of the same tensor."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv2(self.relu(self.bn1(self.conv1(x))))
        return self.relu(out + self.shortcut(x))


def residual_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        Residual(8),
        Residual(8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


def chain_model(channels: int = 8) -> nn.Module:
    """Only convolutions and ReLUs: every tensor saved, except the last output, is a convolution's input."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for given in (3, channels, channels, channels):
        layers += [nn.Conv2d(given, channels, 3, padding=1), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def images(num_images: int = 4, size_px: int = 12, seed: int = 0) -> Tensor:
    return torch.randn(num_images, 3, size_px, size_px, generator=torch.Generator().manual_seed(seed))


@dataclass
class Update:
    loss: float
    gradients: dict[str, Tensor]

    def of(self, kind: type[nn.Module], model: nn.Module) -> dict[str, Tensor]:
        """Return the gradients of the parameters of all modules of a kind."""
        names = {
            f"{name}.{parameter}".lstrip(".")
            for name, module in model.named_modules()
            if isinstance(module, kind)
            for parameter, _ in module.named_parameters(recurse=False)
        }
        return {name: gradient for name, gradient in self.gradients.items() if name in names}


def forward_and_backward(model: nn.Module, inputs: Tensor, *, amp: torch.dtype | None = None) -> Update:
    model.zero_grad()
    with torch.autocast("cpu", dtype=amp, enabled=amp is not None):
        # A copy, so that only the model holds the input of its first layer.
        out = model(inputs.clone(memory_format=torch.preserve_format))
    loss = out.float().square().mean()
    del out
    loss.backward()
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return Update(loss.item(), gradients)
