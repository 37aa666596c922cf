"""Settings of the model, the optimiser, its schedule, and evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated

from omegaconf import MISSING

from pcr_exp.config.check import Bound, at_least, check_fields, one_of, or_null, require
from pcr_exp.config.components import component_of, names

EVAL_GROUPS = ("full", "same", "renewed")
"""Fidelities at which a model may be evaluated, in the order of rows and columns."""

REFERENCE_BATCH_SIZE = 256
"""Published learning rates are for this many images (Goyal et al. 2017)."""

_POSITIVE = Bound(lambda value: 0 < value < math.inf, "a number above 0")
_BELOW_ONE = Bound(lambda value: 0 <= value < 1, "in [0, 1)")
_FACTOR = Bound(lambda value: 0 < value <= 1, "a factor in (0, 1]")
_MILESTONES = Bound(
    lambda epochs: all(a < b for a, b in pairwise([0, *epochs])), "rising numbers of epochs, each at least 1"
)


@dataclass(kw_only=True, slots=True)
class TaskConfig:
    """How a model learns from the label, and its primary metric; see `pcr_exp.training.task`."""

    name: str = "classification"
    """Task, and its primary metric. `classification`: top-1; `balanced`: balanced accuracy, with the recall
    of each class; `auc`: area under the ROC curve, for two classes; `multilabel`: mean average precision, for
    several classes per image; `regression`: R2, for a number. Or another registered name."""

    def __post_init__(self) -> None:
        require(self.name in names("task"), "task.name", self.name, " or ".join(names("task")))
        component_of("task", self)  # refuses a name with the settings of another task


@dataclass(kw_only=True, slots=True)
class TrainingConfig:
    """The optimiser, its schedule, and how often models are evaluated and saved."""

    epochs: Annotated[int, at_least(1)] = MISSING
    """Passes over the training images."""
    batch_size: Annotated[int, at_least(1)] = MISSING
    """Images per micro-batch, normalised and passed through the model together."""
    global_batch_size: int | None = None
    """Images per update over all processes (null: batch_size x world_size). A process with several batches
    per update accumulates their gradients, so that a run can resume with another number of processes."""
    image_size: Annotated[int, at_least(1)] = MISSING
    """Side in pixels of the training crops."""
    eval_image_size: Annotated[int, at_least(1)] = MISSING
    """Side in pixels of the evaluation crops."""
    input_sizes: list[int] = field(default_factory=list)
    """Sides in pixels of the network's input during training: the first until input_milestones[0] epochs are
    done, then the second, and so on (empty: image_size throughout)."""
    input_milestones: list[int] = field(default_factory=list)
    """Numbers of epochs after which the next of input_sizes applies."""
    learning_rate: Annotated[float, _POSITIVE] = MISSING
    """Learning rate for this global batch size, used as it is."""
    optimizer: Annotated[str, one_of("sgd", "adamw")] = "sgd"
    """`sgd`: with momentum, as in the papers; `adamw`: Adam with decoupled weight decay (Loshchilov and
    Hutter 2019), which learns faster when there are few updates."""
    momentum: Annotated[float, _BELOW_ONE] = 0.9
    """SGD's momentum, or AdamW's first beta (the second is 0.999)."""
    nesterov: bool = False
    """Use Nesterov momentum (SGD only)."""
    weight_decay: Annotated[float, at_least(0)] = 1e-4
    """Weight decay: added to the gradients by SGD, decoupled from them by AdamW."""
    schedule: Annotated[str, one_of("step", "cosine", "constant")] = "step"
    """`step`: multiply by lr_gamma at each of lr_milestones (epochs); `cosine`: decay to zero; `constant`."""
    lr_milestones: Annotated[list[int], _MILESTONES] = field(default_factory=list)
    """Epochs at which `schedule=step` multiplies the learning rate by lr_gamma."""
    lr_gamma: Annotated[float, _FACTOR] = 0.1
    """Factor applied at each of lr_milestones."""
    warmup_epochs: Annotated[float, at_least(0)] = 0.0
    """Epochs of linear warm-up of the learning rate from 0."""
    label_smoothing: Annotated[float, _BELOW_ONE] = 0.0
    """Share of the target distribution that is spread over all classes."""
    amp: bool = True
    """Mixed precision; has an effect on GPUs only."""
    channels_last: bool = True
    """Store images and weights in channels-last format, which is faster for convolutions."""
    eval_every_epochs: Annotated[int, at_least(1)] = 1
    """Epochs between two evaluations."""
    eval_split: Annotated[str, one_of("val", "tune")] = "val"
    """Split to evaluate on: `val`, which results are reported on, or `tune`, for choosing settings."""
    eval_groups: list[str] = field(default_factory=lambda: ["full"])
    """Fidelities to evaluate at, with an `eval` row for each. `full`: the original files, which results,
    targets and times refer to. `same`: the scan group of the last update. `renewed`: as `full`, with
    BatchNorm's statistics recomputed on training images at full quality."""
    log_every_steps: Annotated[int, at_least(1)] = 10
    """Updates between two rows of the training loss."""
    checkpoint_every_steps: Annotated[int | None, or_null(at_least(1))] = None
    """Updates between checkpoints, in addition to one after every evaluation (null: only those)."""
    device: str = "auto"
    """`cpu`, `cuda` or another torch device; `auto`: a GPU if there is one."""
    stop_after_s: Annotated[float | None, or_null(_POSITIVE, "null or above 0")] = None
    """For runs that measure time rather than accuracy: stop after this many seconds of training, waiting and
    probes since the first update, and evaluate only if an evaluation is due (null: train all epochs)."""
    exclusive: bool = False
    """Wait until no other exclusive run of this user is active on this host, so that timings are valid. Other
    users' runs are not waited for. Accuracy does not depend on it. In any case, rows record the CPU share
    that others took (`others_cpu_share`)."""
    num_threads: Annotated[int | None, or_null(at_least(1))] = None
    """CPU threads of torch (null: the cores that decoding workers leave; on a GPU, torch's own choice)."""

    def __post_init__(self) -> None:
        check_fields(self, "training")
        total = self.global_batch_size
        whole = total is None or (total >= 1 and total % self.batch_size == 0)
        wanted = f"null or a multiple of training.batch_size={self.batch_size}"
        require(whole, "training.global_batch_size", total, wanted)
        self._check_input_sizes()
        of_sgd = not self.nesterov or self.optimizer == "sgd"
        require(of_sgd, "training.nesterov", self.nesterov, "false with training.optimizer=adamw")
        plain = not self.nesterov or self.momentum > 0
        require(plain, "training.momentum", self.momentum, "above 0 with training.nesterov=true")
        ordered = [group for group in EVAL_GROUPS if group in ("full", *self.eval_groups)]
        wanted = "[full], optionally followed by same and renewed, in this order"
        require(self.eval_groups == ordered, "training.eval_groups", self.eval_groups, wanted)

    def _check_input_sizes(self) -> None:
        sizes, milestones = self.input_sizes, self.input_milestones
        fits = all(1 <= size <= self.image_size for size in sizes)
        wanted = f"sides from 1 to training.image_size={self.image_size} pixels"
        require(fits, "training.input_sizes", sizes, wanted)
        rising = all(a < b for a, b in pairwise([0, *milestones]))
        wanted = f"rising numbers of epochs, one fewer than the sizes in training.input_sizes={sizes}"
        enough = len(milestones) == max(0, len(sizes) - 1)
        require(rising and enough, "training.input_milestones", milestones, wanted)


def scaled_learning_rate(
    per_256: float, batch_size: int, global_batch_size: int | None = None, world_size: int = 1
) -> float:
    """Return the learning rate for a global batch from that for 256 images (Goyal et al. 2017, section 2.1).

    Without a `global_batch_size`, each process contributes `batch_size` images.
    """
    return per_256 * (global_batch_size or batch_size * world_size) / REFERENCE_BATCH_SIZE


@dataclass(kw_only=True, slots=True)
class ModelConfig:
    """A torchvision classification model, with a head for the dataset's label."""

    name: str = MISSING
    """Name of the model in its library."""
    pretrained: bool = False
    """Load weights before the head is replaced: from `weights` if given, else torchvision's default."""
    weights: str | None = None
    """Local state dict (.pt / .pth)."""
    mean: list[float] | None = None
    """Mean of red, green and blue in [0, 1]; the input is (pixels - mean) / std. null: that of the weights,
    from torchvision or a run's checkpoint, else ImageNet's."""
    std: list[float] | None = None
    """Standard deviation of red, green and blue; null: as for mean."""

    def __post_init__(self) -> None:
        both = (self.mean is None) == (self.std is None)
        lacks = "model.std" if self.std is None else "model.mean"
        require(both, lacks, None, "both model.mean and model.std, or neither")
        wanted = "three finite numbers, for red, green and blue in [0, 1], such as [0.485, 0.456, 0.406]"
        for key, values in (("model.mean", self.mean), ("model.std", self.std)):
            fits = values is None or (len(values) == 3 and all(map(math.isfinite, values)))
            require(fits, key, values, wanted)
        scale = "as pixels are in [0, 1]; divide numbers for 0 to 255 by 255"
        within = self.mean is None or all(0 <= value <= 1 for value in self.mean)
        require(within, "model.mean", self.mean, f"numbers from 0 to 1, {scale}")
        divides = self.std is None or all(0 < value <= 1 for value in self.std)
        require(divides, "model.std", self.std, f"numbers above 0 and up to 1, {scale}")
