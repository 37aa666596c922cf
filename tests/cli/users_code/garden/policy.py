from dataclasses import dataclass

from pcr_exp.config.components import register
from pcr_exp.config.scan import CandidatesConfig
from pcr_exp.policies.policy import OneGroup, PolicyInputs


@dataclass(kw_only=True, slots=True)
class AlternatingConfig(CandidatesConfig):
    every: int = 1


class Alternating(OneGroup):
    """Scan policy that takes the candidates in turn, changing after every `every` records."""

    def __init__(self, group: int, candidates: list[int], every: int) -> None:
        super().__init__(group, candidates)
        self._every = every

    def group(self, epoch: int, record: int) -> int | None:
        return self.candidates[record // self._every % len(self.candidates)]


@register("scan", "alternating", AlternatingConfig)
def open_alternating(config: AlternatingConfig, run: PolicyInputs) -> Alternating:
    return Alternating(config.group, config.candidates, config.every)
