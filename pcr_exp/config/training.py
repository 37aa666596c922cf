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
"""At which fidelity a model may be evaluated, in the order of rows and columns."""

REFERENCE_BATCH_SIZE = 256
"""Published learning rates are per this many images (Goyal et al. 2017)."""

_POSITIVE = Bound(lambda value: 0 < value < math.inf, "a number above 0")
_BELOW_ONE = Bound(lambda value: 0 <= value < 1, "in [0, 1)")
_FACTOR = Bound(lambda value: 0 < value <= 1, "a factor in (0, 1]")
_MILESTONES = Bound(
    lambda epochs: all(a < b for a, b in pairwise([0, *epochs])), "rising numbers of epochs, each at least 1"
)


@dataclass(kw_only=True, slots=True)
class TaskConfig:
    """How a model learns from the label, and its primary metric: `pcr_exp.training.task`."""

    name: str = "classification"
    """`classification`: by top-1; `balanced`: by balanced accuracy, with the recall of each class; `auc`: of
    two classes, by the area under the ROC curve; `multilabel`: several classes of an image, by mean average
    precision; `regression`: a number, by R2. Or another, as it is registered."""

    def __post_init__(self) -> None:
        require(self.name in names("task"), "task.name", self.name, " or ".join(names("task")))
        component_of("task", self)  # refuses a name with the settings of another task


@dataclass(kw_only=True, slots=True)
class TrainingConfig:
    """The optimizer, its schedule, and how often models are evaluated and saved."""

    epochs: Annotated[int, at_least(1)] = MISSING
    """Passes over the training images."""
    batch_size: Annotated[int, at_least(1)] = MISSING
    """Images that are normalised and go through the model together."""
    global_batch_size: int | None = None
    """Images of an update, of all processes together (null: batch_size x world_size). A process with several
    batches of it adds up their gradients, so a run can go on with another number of processes."""
    image_size: Annotated[int, at_least(1)] = MISSING
    """Pixels of a side of the crops that are trained on."""
    eval_image_size: Annotated[int, at_least(1)] = MISSING
    """Pixels of a side of the crops that are evaluated."""
    input_sizes: list[int] = field(default_factory=list)
    """Sides of the network's input while it trains, in pixels: the first until input_milestones[0] epochs are
    done, then the second, and so on (none: image_size throughout)."""
    input_milestones: list[int] = field(default_factory=list)
    """Epochs after which the next of input_sizes holds."""
    learning_rate: Annotated[float, _POSITIVE] = MISSING
    """The rate itself, for this global batch size."""
    optimizer: Annotated[str, one_of("sgd", "adamw")] = "sgd"
    """`sgd`: with momentum, as the papers train; `adamw`: Adam with decoupled weight decay (Loshchilov and
    Hutter 2019), which learns in fewer updates where there are few."""
    momentum: Annotated[float, _BELOW_ONE] = 0.9
    """SGD's momentum, or AdamW's first beta (the second is 0.999)."""
    nesterov: bool = False
    """Nesterov's momentum, of SGD."""
    weight_decay: Annotated[float, at_least(0)] = 1e-4
    """Decay of weights; added to gradients by SGD, apart from them by AdamW."""
    schedule: Annotated[str, one_of("step", "cosine", "constant")] = "step"
    """`step`: x lr_gamma at each of lr_milestones (epochs); `cosine`: to zero; `constant`."""
    lr_milestones: Annotated[list[int], _MILESTONES] = field(default_factory=list)
    """Epochs at which `schedule=step` multiplies the rate by lr_gamma."""
    lr_gamma: Annotated[float, _FACTOR] = 0.1
    """Factor of each of lr_milestones."""
    warmup_epochs: Annotated[float, at_least(0)] = 0.0
    """Epochs in which the rate rises from 0, linearly."""
    label_smoothing: Annotated[float, _BELOW_ONE] = 0.0
    """Share of the target that is spread over all classes."""
    amp: bool = True
    """Mixed precision; takes effect on a GPU only."""
    channels_last: bool = True
    """Memory format of images and weights: faster for convolutions."""
    eval_every_epochs: Annotated[int, at_least(1)] = 1
    """Epochs between two evaluations."""
    eval_split: Annotated[str, one_of("val", "tune")] = "val"
    """Images to evaluate on: `val`, which results are reported on, or `tune`, to choose settings by."""
    eval_groups: list[str] = field(default_factory=lambda: ["full"])
    """Fidelities to evaluate at, an `eval` row for each. `full`: the original files, which results, targets
    and times are about. `same`: the scan group of the last update. `renewed`: in full, with BatchNorm's
    statistics measured anew on training images that are read in full."""
    log_every_steps: Annotated[int, at_least(1)] = 10
    """Updates between two rows of the training loss."""
    checkpoint_every_steps: Annotated[int | None, or_null(at_least(1))] = None
    """Besides the checkpoint after every evaluation (null: only those)."""
    device: str = "auto"
    """`cpu`, `cuda` or another of torch's; `auto`: a GPU if there is one."""
    stop_after_s: Annotated[float | None, or_null(_POSITIVE, "null or above 0")] = None
    """For runs that measure seconds and not accuracy: end after so many seconds of training, waiting and
    probes since the first update, without an evaluation unless one is due (null: train all epochs)."""
    exclusive: bool = False
    """Wait until no other exclusive run of this user runs on this host, so that seconds count; other users'
    runs are not waited for. Accuracy does not depend on it. Rows of every run say what others took of the CPU
    (`others_cpu_share`)."""
    num_threads: Annotated[int | None, or_null(at_least(1))] = None
    """torch's CPU threads (null: the cores that decoding workers leave; on a GPU torch's own choice)."""

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
        wanted = "[full], and same or renewed behind it if wanted, in this order"
        require(self.eval_groups == ordered, "training.eval_groups", self.eval_groups, wanted)

    def _check_input_sizes(self) -> None:
        sizes, milestones = self.input_sizes, self.input_milestones
        fits = all(1 <= size <= self.image_size for size in sizes)
        wanted = f"sides from 1 to training.image_size={self.image_size} pixels"
        require(fits, "training.input_sizes", sizes, wanted)
        rising = all(a < b for a, b in pairwise([0, *milestones]))
        wanted = f"rising numbers of epochs, one less than training.input_sizes={sizes} has sizes"
        enough = len(milestones) == max(0, len(sizes) - 1)
        require(rising and enough, "training.input_milestones", milestones, wanted)


def scaled_learning_rate(
    per_256: float, batch_size: int, global_batch_size: int | None = None, world_size: int = 1
) -> float:
    """Return the rate for a global batch, given the rate for 256 images (Goyal et al. 2017, section 2.1).

    Without a `global_batch_size` it is `batch_size` images of each process.
    """
    return per_256 * (global_batch_size or batch_size * world_size) / REFERENCE_BATCH_SIZE


@dataclass(kw_only=True, slots=True)
class ModelConfig:
    """A torchvision classification model by its name, with a head for the dataset's label."""

    name: str = MISSING
    """The model, as its library calls it."""
    pretrained: bool = False
    """Load weights before the head is replaced: from `weights` if given, else torchvision's default."""
    weights: str | None = None
    """A local state dict (.pt / .pth)."""
    mean: list[float] | None = None
    """Mean of red, green and blue in [0, 1]: the input is (pixels - mean) / std. null: that of the weights,
    as torchvision or a run's checkpoint says it, else ImageNet's."""
    std: list[float] | None = None
    """Standard deviation of red, green and blue; null as for mean."""

    def __post_init__(self) -> None:
        both = (self.mean is None) == (self.std is None)
        lacks = "model.std" if self.std is None else "model.mean"
        require(both, lacks, None, "both model.mean and model.std, or neither")
        wanted = "three finite numbers, for red, green and blue in [0, 1], such as [0.485, 0.456, 0.406]"
        for key, values in (("model.mean", self.mean), ("model.std", self.std)):
            fits = values is None or (len(values) == 3 and all(map(math.isfinite, values)))
            require(fits, key, values, wanted)
        divides = self.std is None or min(self.std) > 0
        require(divides, "model.std", self.std, "numbers above 0: pixels are divided by them")
