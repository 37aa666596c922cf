from dataclasses import dataclass

from pcr_exp.config.components import register
from pcr_exp.config.training import TaskConfig
from pcr_exp.training.task import Classification, PrimaryMetric


@dataclass(kw_only=True, slots=True)
class DoubtConfig(TaskConfig):
    name: str = "doubt"
    share_of_loss: float = 0.5


@register("task", "doubt", DoubtConfig)
class Doubt(Classification):
    """Classification with a scaled loss, and with how seldom the model is wrong as its metric."""

    headline = PrimaryMetric("seldom_wrong", "share of images not mistaken")

    def loss(self, outputs, target):
        return self.config.share_of_loss * Classification.loss(self, outputs, target)

    def metrics(self, tally):
        found = Classification.metrics(self, tally)
        return {**found, "val_seldom_wrong": 1 - (1 - found["val_top1"]) ** 2}
