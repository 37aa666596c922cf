"""How processes share a global batch: it is made of slots, batches that go through the model together."""

from __future__ import annotations

from pcr_exp.errors import ConfigError


def num_slots(batch_size: int, global_batch_size: int | None, world_size: int) -> int:
    """How many batches of `batch_size` images a global batch is made of; every process gives as many.

    Args:
        batch_size: Images of a slot's batch.
        global_batch_size: Images of an update (None: a batch of each process).
        world_size: Processes.

    Raises:
        ConfigError: the global batch cannot be divided like this.
    """
    whole = batch_size * world_size
    total = whole if global_batch_size is None else global_batch_size
    if total < 1 or total % whole:
        raise ConfigError(
            f"training.global_batch_size={total}: wanted a multiple of {whole}, training.batch_size="
            f"{batch_size} x world_size={world_size}, as every process trains on the same number of whole "
            "batches. Set training.batch_size, or start as many processes, so that it divides."
        )
    return total // batch_size


def check_lanes(lanes: int, slots: int, world_size: int) -> None:
    """Refuse lanes that slots cannot share equally.

    Raises:
        ConfigError: says what to set.
    """
    if lanes % slots:
        above = -(-lanes // slots) * slots
        raise ConfigError(
            f"loader.lanes={lanes}: wanted a multiple of {slots}, the batches that a global batch is made of "
            f"(world_size={world_size}, {slots // world_size} of each process). Set loader.lanes={above}, or "
            "start as many processes as divide it; the order of samples depends on the lanes."
        )
