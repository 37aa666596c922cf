"""A run that chooses its scan group by what its labels tolerate: its bytes, and no other trace."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pcr_exp.loading.fixed_sample import FixedSample
from pcr_exp.loading.transform import EvalTransform
from pcr_exp.measuring.tolerance.answer import loss_bounds
from pcr_exp.measuring.tolerance.features import Backbone, extract_features
from pcr_exp.measuring.tolerance.images import RecordImages
from pcr_exp.policies.smallest import TolerancePolicyConfig
from pcr_exp.records.reader import RecordSet
from pcr_exp.runs import validation as probes
from pcr_exp.runs.data import open_data
from pcr_exp.runs.rows import read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.training.inputs import IMAGENET

pytest.importorskip("sklearn", reason="scikit-learn is not here: pip install 'pcr-exp[pretrained]'")
SCAN = TolerancePolicyConfig(
    name="tolerance", candidates=[1, 5, 10], num_images=40, image_size=32, margin=0.4, group=10
)


class Pooled(nn.Module):
    """Classifies mean colours of 2 x 2 parts."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 2)

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, 3, H, W] to [B, 2]."""
        return self.head(nn.functional.adaptive_avg_pool2d(images, 2).flatten(1))


@pytest.fixture(autouse=True)
def small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network whose creation draws from torch's generator, like that of any network."""
    monkeypatch.setattr(probes, "open_backbone", lambda _, device: Backbone(Pooled(), IMAGENET, device))


def test_it_reads_its_sample_once_then_its_group_and_leaves_no_trace(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {1: 0.5, 5: 0.1, 10: 0.0}

    def bounds_of(features: Any, labels: Any, groups: Any, headline: str, *, seed: int) -> Any:
        found = loss_bounds(features, labels, groups, headline, seed=seed)
        assert found.keys() == {"full", "same"} and list(found["full"]) == groups == [1, 5, 10]
        assert (features.shape, len(labels), headline) == ((3, 40, 12), 40, "top1")
        return {"full": known, "same": dict.fromkeys(known, 1.0)}

    monkeypatch.setattr(probes, "loss_bounds", bounds_of)
    folder = run_training(configure(scan=SCAN), progress=False).folder
    rows = read_rows(folder / "rows.jsonl")
    (choice,) = [row for row in rows if row["kind"] == "policy"]
    assert (choice["step"], choice["measure"]) == (0, "loss_bound")
    assert choice["scores"] == {str(group): bound for group, bound in known.items()}
    assert choice["group"] == 5
    records: RecordSet = open_data(configure()).train
    sampled = sum(records.read_prefix(record, 10).num_bytes for record in range(3))  # 40 images, 16 a record
    assert choice["probe_bytes"] == sampled and choice["probe_s"] > 0
    last = rows[-1]
    assert last["record_bytes"] == 2 * records.index.epoch_bytes(choice["group"])
    assert last["bytes_read"] == last["record_bytes"] + sampled

    static = configure()
    static.scan.group = choice["group"]
    alone = read_rows(run_training(static, progress=False).folder / "rows.jsonl")
    losses = [[row["train_loss"] for row in run if row["kind"] == "train"] for run in (rows, alone)]
    assert losses[0] == losses[1]


def test_images_of_records_look_as_training_decodes_them(configure: Any) -> None:
    config = configure()
    records = open_data(config).train
    sample = FixedSample(records, 5, decode=records.open_decoder("unsmoothed"))
    transform = EvalTransform(32, config.dataset.augment)
    images = RecordImages(sample, (1, 10), transform)
    assert len(images) == 5 and images.key(0) == images.id(0) == sample.id(0)
    (batch,) = sample.batches(1, transform, label="photo", batch_size=8)
    views = images.views(3)
    np.testing.assert_array_equal(views.crops[0], batch.images[3].numpy())
    assert views.group_bytes[1] == sample.num_bytes(3, 10) and views.original_bytes == 0
    assert [sample.label(i, "photo") for i in range(5)] == batch.labels.tolist()
    found = extract_features(images, Backbone(Pooled(), IMAGENET, torch.device("cpu")), folder=None)
    assert found.values.shape == (2, 5, 12)
