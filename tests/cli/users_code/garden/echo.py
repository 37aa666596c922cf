from dataclasses import dataclass

import numpy as np

from pcr_exp.config.components import register
from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.loading.order import SampleSequence, epoch_order
from pcr_exp.loading.stage import Stage, StageInputs


@dataclass(kw_only=True, slots=True)
class ThereAndBackConfig(EchoConfig):
    name: str = "there_and_back"
    times: int = 1

    def num_samples(self, num_fresh: int) -> int:
        return num_fresh * (1 + self.times)


@register("echo", "there_and_back", ThereAndBackConfig)
class ThereAndBack(Stage):
    """Stage that follows an epoch with `times` repeats of it in reverse order."""

    def __init__(self, config: ThereAndBackConfig, inputs: StageInputs) -> None:
        super().__init__(inputs)
        self.num_batches = -(-config.num_samples(inputs.num_samples) // inputs.batch_size)
        self._times = config.times

    def order(self, fresh, epoch):
        uses = []
        for slot in fresh:
            there = np.arange(len(slot.records))
            way = np.concatenate([there, *[there[::-1]] * self._times])
            repeats = np.repeat(np.arange(1 + self._times), len(there))
            uses.append(SampleSequence(slot.records[way], slot.samples[way], repeats))
        return epoch_order(uses, self._batch_size)
