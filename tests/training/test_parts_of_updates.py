"""Updates from several batches per process do not depend on the number of processes."""

from typing import Any

import pytest
import torch
from distributed_trainers import NUM_STEPS, RATE, batch, trainer_of, weights
from gloo_processes import spawned
from torch import nn

from pcr_exp.config.related_methods import GradientsConfig
from pcr_exp.training.distributed.processes import Processes
from pcr_exp.training.trainer import Trainer


def in_parts(trainer: Trainer, slots: range, which: range, *, same_images: bool = False) -> list[list[float]]:
    return [
        [
            trainer.update(
                *batch(s, 0 if same_images else slot),
                step=s,
                learning_rate=RATE,
                slot=slot,
                part=part,
                num_parts=len(slots),
            )
            for part, slot in enumerate(slots)
        ]
        for s in which
    ]


def train_in_parts(processes: Processes) -> dict[str, Any]:
    per_process = 4 // processes.world_size
    slots = range(processes.rank * per_process, (processes.rank + 1) * per_process)
    trainer = trainer_of(processes, GradientsConfig(), norm=False)
    losses = in_parts(trainer, slots, range(NUM_STEPS))
    traffic = trainer.exchange.traffic

    def with_dropout() -> Trainer:
        trained = trainer_of(processes, GradientsConfig(), norm=False)
        trained.model.insert(4, nn.Dropout(0.5))  # type: ignore[operator]
        return trained

    first, resumed = with_dropout(), with_dropout()
    dropped = in_parts(first, slots, range(2), same_images=True)
    state = first.state_dict()
    resumed.load_state_dict({**state, "exchange": {}})
    return {
        "weights": weights(trainer),
        "losses": [step[-1] for step in losses],
        "values": traffic.pushed_values if traffic else 0,
        "dropped": dropped[0][:-1],
        "next": in_parts(first, slots, range(2, 3), same_images=True),
        "resumed_next": in_parts(resumed, slots, range(2, 3), same_images=True),
    }


def test_an_update_is_the_same_of_any_number_of_processes() -> None:
    """An update has four batches on one or two processes; gradients are sent once, not per batch."""
    alone = train_in_parts(Processes())
    both = spawned(train_in_parts, 2)
    for one in both:
        for name, value in alone["weights"].items():
            torch.testing.assert_close(one["weights"][name], value, rtol=1e-4, atol=1e-6)
        assert one["losses"] == pytest.approx(alone["losses"], rel=1e-4)
        assert one["values"] == NUM_STEPS * sum(value.numel() for value in alone["weights"].values())
        assert one["next"] == one["resumed_next"]
    first_losses = [*alone["dropped"], *(loss for one in both for loss in one["dropped"])]
    assert len(set(alone["dropped"])) == 3, "the same images; dropout differs between the slots"
    assert first_losses[0] == first_losses[3], "and not with the process that the slot is in"
    assert first_losses[2] == first_losses[4]
