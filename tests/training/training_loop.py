"""A run of the training loop on a loader, a clock and a policy that tests control."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from pcr_exp.config.training import TrainingConfig
from pcr_exp.loading.batch import Batch
from pcr_exp.policies.policy import Decision, Probe, StaticScan, Update
from pcr_exp.system import MIB
from pcr_exp.training.clocks import Clocks
from pcr_exp.training.evaluate import evaluate
from pcr_exp.training.loop import Loop, Stopping
from pcr_exp.training.report import Measure, Progress, Reporter, Row, no_measure
from pcr_exp.training.trainer import Trainer

DETERMINISTIC = ("kind", "epoch", "step", "samples_seen", "scan_group", "record_bytes", "learning_rate")
SCORES = ("train_loss", "val_loss", "val_top1", "val_top5", "num_val")


class FakeTime:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class FakeLoader:
    """20 images whose class is their colour, in batches of 8, 8 and 4. A batch takes 2 s to arrive."""

    num_batches = 3

    def __init__(self, time: FakeTime, *, num_epochs: int | None = None) -> None:
        self.time = time
        self.events: list[str] = []
        self.bytes_read = 0
        self._num_epochs = num_epochs

    def batch(self, epoch: int, index: int) -> Batch:
        generator = torch.Generator().manual_seed(epoch * 3 + index)
        size = (8, 8, 4)[index]
        labels = torch.randint(3, (size,), generator=generator)
        noise = torch.randint(100, (size, 8, 8, 3), generator=generator)
        images = noise + 150 * nn.functional.one_hot(labels, 3)[:, None, None]
        group = 2 + epoch
        return Batch(images.to(torch.uint8), labels, epoch, index, 3, 100 * (index + 1), 400, group)

    def batches(self, first_epoch: int, first_batch: int, num_epochs: int) -> Iterator[Batch]:
        self.events.append(f"batches {first_epoch} {first_batch} {num_epochs}")
        for epoch in range(first_epoch, self._num_epochs or num_epochs):
            for index in range(first_batch if epoch == first_epoch else 0, 3):
                self.time.now_s += 2
                self.bytes_read += MIB
                yield self.batch(epoch, index)

    def pause(self) -> None:
        self.time.now_s += 0.5
        self.events.append("pause")

    def resume(self) -> None:
        self.events.append("resume")


class Observer(StaticScan):
    """A scan policy that records its inputs; the test sets the probes it wants and its decisions."""

    def __init__(self) -> None:
        super().__init__(2)
        self.updates: list[Update] = []
        self.told: list[Mapping[int, float]] = []
        self.wanted: dict[int, Probe] = {}
        self.asked: list[int] = []
        self.decisions: list[Decision] = []

    def group(self, epoch: int, record: int) -> int:  # noqa: ARG002
        raise AssertionError("the loader asks, not the loop")

    def observe(self, update: Update) -> None:
        self.updates.append(update)

    def wanted_probe(self, epoch: int) -> Probe | None:
        self.asked.append(epoch)
        return self.wanted.pop(epoch, None)

    def decide(self, scores: Mapping[int, float]) -> None:
        self.told.append(scores)
        self.decisions.append(Decision(min(scores), "cosine", scores))

    def take_decision(self) -> Decision | None:
        return self.decisions.pop() if self.decisions else None


class Run:
    """A run of 4 epochs of 3 updates that keeps its checkpoints in memory."""

    def __init__(
        self,
        saved: dict[str, Any] | None = None,
        *,
        model: nn.Module | None = None,
        loader_epochs: int | None = None,
        **changes: Any,
    ):
        fields = {"epochs": 4, "batch_size": 8, "image_size": 8, "eval_image_size": 8, "learning_rate": 0.02}
        self.config = TrainingConfig(**{**fields, "log_every_steps": 2, "schedule": "cosine", **changes})
        torch.manual_seed(0)
        model = model or nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(192, 3))
        self.time = FakeTime()
        self.loader = FakeLoader(self.time, num_epochs=loader_epochs)
        self.trainer = Trainer(model, self.config, device=torch.device("cpu"), seed=0)
        self.policy = Observer()
        self.progress = Progress()
        self.clocks = Clocks(now=self.time)
        self.rows: list[Row] = []
        self.saved: list[dict[str, Any]] = []
        self.stop_at: int | None = None
        self.measure: Measure = no_measure
        if saved is not None:
            self.trainer.load_state_dict(saved["trainer"])
            self.progress = Progress.from_state(saved["progress"])
            self.clocks.load_state_dict(saved["clocks"])
        self.earlier_bytes = saved["bytes_read"] if saved else 0

    def bytes_read(self) -> int:
        return self.earlier_bytes + self.loader.bytes_read

    def evaluate(self, scan_group: int) -> dict[str, dict[str, Any]]:
        assert scan_group == self.progress.scan_group
        assert self.loader.events[-1] == "pause"
        assert self.clocks.current == "eval"
        self.time.now_s += 5
        scores = evaluate(
            self.trainer.model, self.trainer.forward, self.trainer.task, [self.loader.batch(99, 0)]
        )
        return dict.fromkeys(self.config.eval_groups, scores)

    def probe(self, wanted: Probe) -> dict[int, float]:
        assert self.loader.events[-1] == "pause"
        assert self.clocks.current == "probe"
        self.time.now_s += 7
        self.loader.bytes_read += 1000
        return dict.fromkeys(wanted.candidates, 0.9)

    def checkpoint(self) -> None:
        assert self.clocks.current == "other"
        self.time.now_s += 1
        state = {
            "trainer": self.trainer.state_dict(),
            "progress": self.progress.state_dict(),
            "clocks": self.clocks.state_dict(),
            "bytes_read": self.bytes_read(),
            "num_rows": len(self.rows),
        }
        self.saved.append(copy.deepcopy(state))

    def loop(self) -> Loop:
        return Loop(
            trainer=self.trainer,
            loader=self.loader,
            policy=self.policy,
            reporter=Reporter(self.progress, self.clocks, self.bytes_read, self.measure),
            evaluate=self.evaluate,
            probe=self.probe,
            checkpoint=self.checkpoint,
            stopping=Stopping(should_stop=lambda: self.progress.step == self.stop_at),
        )

    def go(self) -> list[Row]:
        for row in self.loop().rows():
            assert self.clocks.current == "other"
            self.time.now_s += 0.25
            self.rows.append(row)
        return self.rows
