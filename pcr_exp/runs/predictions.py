"""Predictions for every evaluated image, saved for the evaluations that tables report.

Two evaluations are saved for each of `training.eval_groups`: the last one, of the finished model, and the
best one by the task's primary metric. An image is identified by 64 bits of a hash of its id. Images can thus
be matched across runs, and published sets do not contain the file names of a user's images. The probability
that the model gives the label is exp(-loss), which is more precise than a float16 of its own would be.

`predictions.npz` is in a run's directory, or next to the rows of a packed set. It holds for every run:

    <run_id>/evaluations  [E]     epoch, eval_group, score, and the row of each in the next three arrays
    <run_id>/correct      [K, (N + 7) // 8]  bits: whether the model predicts the label
    <run_id>/loss         [K, N]  float16: cross-entropy with the label, without label smoothing
    <run_id>/probabilities [K, N, classes] float16, only for tasks that save them
    <run_id>/images       []      key of the run's images, which runs in a set can share:
    images/<key>/image    [N]     uint64, `image_hash` of the id, in the order of the records
    images/<key>/label    [N]     int32 class index
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcr_exp.config.commands import TrainConfig
from pcr_exp.errors import RunError
from pcr_exp.records.reader import RecordSet
from pcr_exp.runs.data import ids_and_labels
from pcr_exp.system.atomic import write_atomic

if TYPE_CHECKING:
    import pandas as pd

    from pcr_exp.runs.data import RunData

PREDICTIONS_FILE = "predictions.npz"
COLUMNS = ("run_id", "image", "label", "epoch", "eval_group", "correct", "loss", "probability")
_EVALUATIONS = np.dtype([("epoch", "<i4"), ("eval_group", "<U8"), ("score", "<f8"), ("row", "<i4")])
_IMAGES = "images"


@dataclass(frozen=True, slots=True)
class ImageScores:
    """One evaluation."""

    epoch: int
    eval_group: str
    score: float
    correct: NDArray[np.bool_]
    loss: NDArray[np.float16]
    probabilities: NDArray[np.float16] | None = None
    """[N, classes], for every class; None if the task does not save them."""


@dataclass(slots=True)
class Predictions:
    """The saved evaluations of one run."""

    image: NDArray[np.uint64]
    """[N] `image_hash` of each evaluated image, in the order of the records."""
    label: NDArray[np.int32]
    """[N] class indexes."""
    evaluations: list[ImageScores] = field(default_factory=list)
    """Grouped by eval group, each in order of epoch."""

    def keep(
        self,
        epoch: int,
        eval_group: str,
        score: float | None,
        *,
        label: NDArray[Any],
        correct: NDArray[Any],
        loss: NDArray[Any],
        probabilities: NDArray[Any] | None = None,
    ) -> None:
        """Add an evaluation and drop those that it supersedes.

        Args:
            epoch: Epochs completed.
            eval_group: One of `training.eval_groups`.
            score: The primary metric; None if it is undefined.
            label: [N] class indexes of the evaluated images.
            correct: [N] booleans.
            loss: [N] cross-entropies with the label.
            probabilities: [N, classes], if the task saves them.

        Raises:
            RunError: the labels are not those of the records in their order.
        """
        if not np.array_equal(label, self.label):
            raise RunError(
                f"epoch {epoch}: the labels of the evaluated images are not those of the records, in their "
                "order. This is a defect of the loader: please report it."
            )
        with np.errstate(over="ignore"):  # a loss above 65,504 becomes inf: a probability of 0
            rounded = loss.astype(np.float16)
        scores = ImageScores(epoch, eval_group, _number(score), correct, rounded, probabilities)
        same = [other for other in self.evaluations if other.eval_group == eval_group]
        others = [other for other in self.evaluations if other.eval_group != eval_group]
        before = [other for other in same if other.epoch < epoch]
        best = max([*before, scores], key=lambda other: other.score)  # the first of equal ones
        self.evaluations = [*others, *([best] if best is not scores else []), scores]

    def state(self) -> Tensor:
        """Return everything as a uint8 tensor, which a checkpoint may hold."""
        return torch.frombuffer(bytearray(_pack({"": self})), dtype=torch.uint8)

    def load_state(self, state: Tensor) -> None:
        """Restore the evaluations from `state`."""
        found = _unpack(state.numpy().tobytes(), "the checkpoint")
        self.evaluations = found[""].evaluations

    def write(self, path: Path, run_id: str) -> None:
        """Write the predictions, if any. Raises StorageError if the disk is full or cannot be written."""
        if self.evaluations:
            write_predictions(path, {run_id: self})

    def frame(self, run_id: str) -> pd.DataFrame:
        """Return the rows of this run as in `read_predictions`."""
        import pandas as pd

        parts = [
            pd.DataFrame(
                {
                    "run_id": run_id,
                    "image": self.image,
                    "label": self.label,
                    "epoch": scores.epoch,
                    "eval_group": scores.eval_group,
                    "correct": scores.correct,
                    "loss": scores.loss.astype(np.float32),
                    "probability": np.exp(-scores.loss.astype(np.float32)),
                }
            )
            for scores in self.evaluations
        ]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))


def image_hash(image_id: str) -> int:
    """Return the 64-bit hash that identifies an image in all runs."""
    digest = hashlib.sha256(image_id.encode(errors="surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big")


def open_predictions(data: RunData, config: TrainConfig) -> Predictions:
    """Return the predictions of a new run, without any evaluation yet.

    Raises:
        PcrExpError: a record cannot be read, or is damaged.
    """
    records: RecordSet = getattr(data, config.training.eval_split)
    images: list[int] = []
    labels: list[int] = []
    for ids, of_record in ids_and_labels(records, config.dataset.label):
        images += map(image_hash, ids)
        labels += of_record.tolist()
    return Predictions(np.array(images, dtype=np.uint64), np.array(labels, dtype=np.int32))


def read_predictions(runs_root: Path, run_ids: Iterable[str] | None = None) -> pd.DataFrame:
    """Return one row per image and saved evaluation of the runs in `runs_root`, finished or not.

    Columns: `run_id`; `image` (uint64, equal for the same image in all runs) and its `label` (class index);
    `epoch` and `eval_group`, as in the eval row that reports the evaluation; `correct` (bool), `loss` and
    `probability` of the label (float32, with 11 significant bits).

    Args:
        runs_root: A folder of run directories, of a packed set, or of both.
        run_ids: Ids of the runs to read; None: all.

    Raises:
        RunError: one of `run_ids` has no predictions (it is too old, its task saves none, or it ended by
            `training.stop_after_s`), or a file is damaged.
    """
    import pandas as pd

    found = predictions_below(runs_root)
    wanted = sorted(found) if run_ids is None else list(run_ids)
    if lacking := [run_id for run_id in wanted if run_id not in found]:
        raise RunError(
            f"{runs_root} has no predictions of {lacking[0]} ({len(lacking)} such runs): it is older than "
            f"{PREDICTIONS_FILE}, or was never evaluated. Train it again, in a folder of its own."
        )
    frames = [found[run_id].frame(run_id) for run_id in wanted]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))


def predictions_below(runs_root: Path) -> dict[str, Predictions]:
    """Return by run id the predictions in a folder's run directories and packed set. Raises RunError."""
    packed = runs_root / PREDICTIONS_FILE
    found = _unpack(packed.read_bytes(), str(packed)) if packed.exists() else {}
    for path in sorted(runs_root.glob(f"*/{PREDICTIONS_FILE}")):
        of_one = list(_unpack(path.read_bytes(), str(path)).values())
        if len(of_one) != 1:
            raise RunError(
                f"{path} holds predictions of {len(of_one)} runs; wanted those of its own run only. Restore "
                "it."
            )
        found[path.parent.name] = of_one[0]
    return found


def write_predictions(path: Path, predictions: Mapping[str, Predictions]) -> None:
    """Write predictions by run id. Raises StorageError if the disk is full or cannot be written."""
    write_atomic(path, [_pack(predictions)])


def _number(score: float | None) -> float:
    return -np.inf if score is None else float(score)


def _pack(predictions: Mapping[str, Predictions]) -> bytes:
    arrays: dict[str, NDArray[Any]] = {}
    for run_id, of_run in predictions.items():
        key = hashlib.sha256(of_run.image.tobytes() + of_run.label.tobytes()).hexdigest()[:16]
        arrays[f"{_IMAGES}/{key}/image"] = of_run.image
        arrays[f"{_IMAGES}/{key}/label"] = of_run.label
        # A baseline's two eval groups read the same files, so equal rows are stored once.
        rows: dict[bytes, int] = {}
        unique: list[ImageScores] = []
        table = np.zeros(len(of_run.evaluations), dtype=_EVALUATIONS)
        for place, scores in enumerate(of_run.evaluations):
            content = scores.correct.tobytes() + scores.loss.tobytes()
            if content not in rows:
                rows[content] = len(unique)
                unique.append(scores)
            table[place] = (scores.epoch, scores.eval_group, scores.score, rows[content])
        shape = (len(unique), len(of_run.image))
        correct = np.array([scores.correct for scores in unique], dtype=bool).reshape(shape)
        arrays[f"{run_id}/evaluations"] = table
        arrays[f"{run_id}/correct"] = np.packbits(correct, axis=1)
        loss = np.array([scores.loss for scores in unique], dtype=np.float16).reshape(shape)
        arrays[f"{run_id}/loss"] = loss
        if unique and all(scores.probabilities is not None for scores in unique):
            shares = np.array([scores.probabilities for scores in unique], dtype=np.float16)
            arrays[f"{run_id}/probabilities"] = shares
        arrays[f"{run_id}/{_IMAGES}"] = np.array(key)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # it has no other keyword arguments
    return buffer.getvalue()


def _unpack(data: bytes, where: str) -> dict[str, Predictions]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            places = [name.rpartition("/") for name in file.files]
            return {run_id: _of_run(file, run_id) for run_id, _, array in places if array == "evaluations"}
    except Exception as error:  # zipfile and numpy raise any kind of error for damaged data
        raise RunError(
            f"{where} holds no predictions: {type(error).__name__}: {error}. Restore it, or delete it: only "
            "statistics over images need it."
        ) from error


def _of_run(file: Mapping[str, NDArray[Any]], run_id: str) -> Predictions:
    key = str(file[f"{run_id}/{_IMAGES}"])
    found = Predictions(file[f"{_IMAGES}/{key}/image"], file[f"{_IMAGES}/{key}/label"])
    table, loss = file[f"{run_id}/evaluations"], file[f"{run_id}/loss"]
    correct = np.unpackbits(file[f"{run_id}/correct"], axis=1, count=len(found.image)).astype(bool)
    if table.dtype != _EVALUATIONS or not len(found.image) == len(found.label) == loss.shape[1]:
        raise ValueError(f"the arrays of {run_id} do not fit each other")
    name = f"{run_id}/probabilities"
    shares = file[name] if name in file else [None] * len(loss)
    if len(shares) != len(loss):
        raise ValueError(f"the arrays of {run_id} do not fit each other")
    found.evaluations = [
        ImageScores(int(epoch), str(eval_group), float(score), correct[row], loss[row], shares[row])
        for epoch, eval_group, score, row in table
    ]
    return found
