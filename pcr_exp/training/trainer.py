"""One update: step the model on a batch at the scheduled learning rate, and return the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcr_exp.activations.keep import open_activations
from pcr_exp.activations.kept import SavedBytes
from pcr_exp.config.related_methods import ActivationsConfig
from pcr_exp.config.training import TrainingConfig
from pcr_exp.training.clocks import amp_dtype
from pcr_exp.training.distributed.exchange import Exchange
from pcr_exp.training.inputs import IMAGENET, Normalization, input_size, model_input, shrunk
from pcr_exp.training.inputs import KEY as NORMALIZATION_KEY
from pcr_exp.training.task import Classification, Task


def learning_rate(config: TrainingConfig, step: int, steps_per_epoch: int) -> float:
    """Return the learning rate of one update.

    Warm-up climbs linearly and reaches the full rate with its last update (Goyal et al. 2017). Milestones
    count from the start of the run, but a cosine starts after warm-up (Loshchilov and Hutter 2016).

    Args:
        config: The schedule, in epochs.
        step: The update, counted from 0 over the whole run.
        steps_per_epoch: Updates in an epoch, at least 1.
    """
    warmup_steps = round(config.warmup_epochs * steps_per_epoch)
    if step < warmup_steps:
        return config.learning_rate * (step + 1) / warmup_steps
    return config.learning_rate * _decay(config, step, steps_per_epoch, warmup_steps)


def _decay(config: TrainingConfig, step: int, steps_per_epoch: int, warmup_steps: int) -> float:
    if config.schedule == "step":
        passed = sum(step >= milestone * steps_per_epoch for milestone in config.lr_milestones)
        return config.lr_gamma**passed
    if config.schedule == "cosine":
        decay_steps = config.epochs * steps_per_epoch - warmup_steps
        return 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / decay_steps))
    return 1.0


def open_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Build the configured optimizer for all parameters of `model`."""
    if config.optimizer == "adamw":
        return torch.optim.AdamW(
            model.parameters(),
            lr=config.learning_rate,
            betas=(config.momentum, 0.999),
            weight_decay=config.weight_decay,
            fused=True,  # a small model has hundreds of parameters, and a call for each is slow
        )
    return torch.optim.SGD(
        model.parameters(),
        lr=config.learning_rate,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
    )


class Trainer:
    """A model and its optimizer.

    Randomness inside the model (dropout, stochastic depth) depends only on (seed, step, micro-batch of the
    global batch). So a resumed run draws the same numbers as an uninterrupted one, and no two batches of an
    update draw the same.
    """

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        *,
        device: torch.device,
        seed: int,
        activations: ActivationsConfig | None = None,
        exchange: Exchange | None = None,
        normalization: Normalization = IMAGENET,
        task: Task | None = None,
    ) -> None:
        """Move `model` to `device` and build its optimizer; `exchange` reaches the other processes, if any.

        `normalization` is the input normalisation that the model's weights expect; `task` defines the loss
        (None: plain classification).

        Raises:
            ConfigError: the model or the optimizer does not suit `activations`.
        """
        self.config = config
        self.device = device
        self.seed = seed
        self.normalization = normalization
        self.task: Task = task or Classification(label_smoothing=config.label_smoothing)
        self.amp_dtype = amp_dtype(device) if config.amp else None
        self.model = model.to(device)
        if config.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.optimizer = open_optimizer(self.model, config)
        self.exchange = exchange or Exchange()
        self._replica = self.exchange.attach(self.model)
        # float16 gradients underflow without loss scaling; bfloat16 has float32's range.
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.amp_dtype is torch.float16)
        activations = activations or ActivationsConfig()
        self.activations = open_activations(activations, self.model, self.optimizer, seed)
        self.saved_bytes = SavedBytes(activations.interval)
        self._losses: list[float] = []
        """Losses of the current update's parts."""
        self._input_size = input_size(config, epoch=0)

    def begin_epoch(self, epoch: int) -> None:
        """Set the training input size to that of `epoch`, counted from 0."""
        self._input_size = input_size(self.config, epoch)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [B, classes] in float32 for uint8 images [B, H, W, 3].

        In training mode, images are first shrunk to the epoch's input size.
        """
        if self.model.training:
            images = shrunk(images.to(self.device, non_blocking=True), self._input_size)
        inputs = model_input(
            images, self.device, channels_last=self.config.channels_last, normalization=self.normalization
        )
        with torch.autocast(self.device.type, dtype=self.amp_dtype, enabled=self.amp_dtype is not None):
            logits = self._replica(inputs) if self.model.training else self.model(inputs)
        return logits.float()

    def loss(self, images: Tensor, labels: Tensor, *, step: int, slot: int = 0) -> Tensor:
        """Return the mean loss of one of this process's batches, as update `step` would compute it.

        Arguments as in `update`.
        """
        torch.manual_seed(_seed_of_draws(self.seed, step, slot))
        self.model.train()
        self.activations.begin(step)
        outputs = self.forward(images)
        return self.task.loss(outputs, self.task.target(labels.to(self.device, non_blocking=True)))

    def update(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        step: int,
        learning_rate: float,
        slot: int = 0,
        part: int = 0,
        num_parts: int = 1,
    ) -> float:
        """Take one optimizer step and return the mean loss of the batch, or of all processes' batches.

        An update may have several parts of equal size. Each part but the last adds its gradient, sends
        nothing and returns its own loss. The last part takes the step and returns the mean over all.

        A loss that is not finite is returned without a step, so the weights are unchanged.

        Args:
            images: uint8 [B, H, W, 3].
            labels: int64 [B].
            step: The update, counted from 0.
            learning_rate: The update's learning rate.
            slot: Index of this micro-batch in the global batch; each index draws its own random numbers.
            part: Index of this batch among this process's batches of the update; they come in order.
            num_parts: Number of this process's batches in the update.
        """
        if part == 0:
            self.optimizer.zero_grad(set_to_none=True)
            self._losses = []
        if part + 1 < num_parts:
            with self.exchange.accumulating():
                loss = self._loss(images, labels, step, slot)
                self.scaler.scale(loss / num_parts).backward()
            return self._losses[-1]
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        loss = self._loss(images, labels, step, slot)
        value = self.exchange.mean(sum(self._losses) / num_parts)
        if np.isfinite(value):
            loss_scale = self.scaler.get_scale()
            self.scaler.scale(loss / num_parts if num_parts > 1 else loss).backward()
            self.exchange.step(self._step)
            if self.scaler.is_enabled():  # a parameter server alone notices an overflow
                self.scaler.update(self.exchange.from_updater(self.scaler.get_scale))
            self.activations.end(step, loss_scale / num_parts, num_parts * self.exchange.world_size)
        return value

    def _loss(self, images: Tensor, labels: Tensor, step: int, slot: int) -> Tensor:
        with self.saved_bytes.measure(step):
            loss = self.loss(images, labels, step=step, slot=slot)
        self._losses.append(loss.item())
        return loss

    def _step(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the context, updates use this process's gradients only, and nothing is sent."""
        exchange, replica = self.exchange, self._replica
        self.exchange, self._replica = Exchange(), self.model
        try:
            yield
        finally:
            self.exchange, self._replica = exchange, replica

    def state_dict(self) -> dict[str, Any]:
        """Return everything that updates change."""
        return {
            "model": self.model.state_dict(),
            NORMALIZATION_KEY: self.normalization.to_plain(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "activations": self.activations.state_dict(),
            "kept": self.saved_bytes.state_dict(),
            "exchange": self.exchange.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.model.load_state_dict(state["model"])
        self.normalization = Normalization.from_plain(state[NORMALIZATION_KEY])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.activations.load_state_dict(state["activations"])
        self.saved_bytes.load_state_dict(state["kept"])
        self.exchange.load_state_dict(state["exchange"])


def _seed_of_draws(seed: int, step: int, slot: int) -> int:
    # torch's CPU generator uses only 32 bits of its seed, so the numbers are mixed into these.
    return int(np.random.SeedSequence((seed, step, slot)).generate_state(1)[0])
