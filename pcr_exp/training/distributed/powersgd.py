"""PowerSGD (Vogels, Karimireddy, Jaggi 2019): a gradient matrix as the product of two thin ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pcr_exp.gradients.tensors import Named, Shape, is_small
from pcr_exp.training.distributed.ddp import AllReduce
from pcr_exp.training.distributed.wire import Wire


class PowerSGD:
    """One power iteration per step, begun where the last one ended; what it misses is fed back.

    Tensors that two factors would not make smaller are averaged as they are, as are small ones. PyTorch's
    own hook keeps its state by bucket, which no checkpoint survives; this one keeps it by the tensor's name.
    """

    def __init__(self, wire: Wire, rank: int, min_values: int) -> None:
        """Approximate matrices by products of `rank` columns and rows."""
        self._all_reduce = AllReduce(wire, torch.float32)
        self._wire = wire
        self._rank = rank
        self._min_values = min_values
        self._residuals: dict[str, Tensor] = {}
        self._factors: dict[str, Tensor] = {}

    def average(self, gradients: Named) -> list[Tensor]:
        """See `Averaging.average`. A mean that is not finite leaves residuals and factors as they were."""
        matrices = {
            name: gradient.detach().reshape(len(gradient), -1).float() + self._residuals.get(name, 0)
            for name, gradient in gradients
            if self._is_factored(gradient.shape)
        }
        before = self._wire.traffic.pushed_values
        plain = [(name, gradient) for name, gradient in gradients if name not in matrices]
        left = [(name, matrix @ self._factor(name, matrix)) for name, matrix in matrices.items()]
        means = dict(zip([name for name, _ in [*plain, *left]], self._mean([*plain, *left]), strict=True))
        bases = {name: torch.linalg.qr(means[name].nan_to_num())[0] for name in matrices}
        right = [(name, matrix.T @ bases[name]) for name, matrix in matrices.items()]
        factors = dict(zip(matrices, self._mean(right), strict=True))
        for name, matrix in matrices.items():
            product = bases[name] @ factors[name].T
            if product.isfinite().all():
                self._factors[name], self._residuals[name] = factors[name], matrix - product
            means[name] = product
        self._wire.traffic.pushed_plain_values += sum(gradient.numel() for _, gradient in plain)
        # Two factors stand for the matrix's values.
        self._wire.traffic.pushed_values = before + sum(gradient.numel() for _, gradient in gradients)
        return [means[name].view(gradient.shape) for name, gradient in gradients]

    def state_dict(self) -> dict[str, Any]:
        """Return residuals, which are this process's own, and factors, which are everyone's."""
        return {"residuals": dict(self._residuals), "factors": dict(self._factors)}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Go on from `state`."""
        self._residuals = {name: value.to(device) for name, value in state["residuals"].items()}
        self._factors = {name: value.to(device) for name, value in state["factors"].items()}

    def _is_factored(self, shape: Shape) -> bool:
        if is_small(shape, self._min_values):
            return False
        rows = shape[0]
        columns = torch.Size(shape[1:]).numel()
        return self._rank * (rows + columns) < rows * columns

    def _factor(self, name: str, matrix: Tensor) -> Tensor:
        if name not in self._factors:
            # The same in every process: they all see the same names.
            generator = torch.Generator().manual_seed(sum(name.encode()))
            fresh = torch.randn(matrix.shape[1], self._rank, generator=generator)
            self._factors[name] = fresh.to(matrix.device)
        return self._factors[name]

    def _mean(self, tensors: Named) -> list[Tensor]:
        return self._all_reduce.average(tensors) if tensors else []
