"""Third-party training loops work with a dataset of `pcr_exp.open` instead of their own.

`pip install -e '.[frameworks]'` installs them. Tests of missing frameworks are skipped.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.transforms import v2

import pcr_exp as pcr
from pcr_exp.api.dataset import RecordDataset

CROP = v2.Compose([v2.RandomResizedCrop(16), v2.ToDtype(torch.float32, scale=True)])


@pytest.fixture
def train(split: Path) -> RecordDataset:
    return pcr.open(split, scan="group_2", label="parity", transform=CROP)


def small_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )


def test_a_plain_torch_loop(train: RecordDataset) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with train.loader(batch_size=25, seed=0, num_workers=1) as loader:
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loader.observe(loss=loss.item())
    assert torch.isfinite(loss)


def test_torchvision_s_reference_script(split: Path) -> None:
    """The dataset works with the Pillow transforms, sampler and batch mixup of torchvision's train.py."""
    as_floats = [transforms.PILToTensor(), transforms.ConvertImageDtype(torch.float)]
    augment = transforms.Compose(
        [transforms.RandomResizedCrop(16), transforms.TrivialAugmentWide(), *as_floats]
    )
    dataset = pcr.open(split, scan="group_5", label="parity", transform=augment)
    sampler = torch.utils.data.distributed.DistributedSampler(dataset, num_replicas=2, rank=1)
    mixup = v2.MixUp(num_classes=len(dataset.classes))

    def collate(batch: list[Any]) -> Any:
        return mixup(*torch.utils.data.default_collate(batch))

    loader = DataLoader(dataset, batch_size=10, sampler=sampler, num_workers=1, collate_fn=collate)
    for images, labels in loader:
        assert images.shape == (10, 3, 16, 16) and labels.shape == (10, 2)
    assert len(loader) == 5


class TestLightning:
    @staticmethod
    def module() -> Any:
        lightning = pytest.importorskip("lightning", reason="pip install -e '.[frameworks]'")

        class Classifier(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.model, self.seen = small_model(), []

            def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
                images, labels = batch
                self.seen.append(images.clone())
                return nn.functional.cross_entropy(self.model(images), labels)

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.SGD(self.parameters(), lr=0.1)

        return Classifier()

    @staticmethod
    def trainer(folder: Path, **given: Any) -> Any:
        import lightning

        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
        return lightning.Trainer(accelerator="cpu", devices=1, default_root_dir=folder, **quiet, **given)

    def test_with_torch_s_loader(self, train: RecordDataset, tmp_path: Path) -> None:
        module = self.module()
        self.trainer(tmp_path, max_steps=3).fit(module, DataLoader(train, batch_size=8, num_workers=1))
        assert len(module.seen) == 3

    def test_with_ours_which_its_checkpoints_save(self, train: RecordDataset, tmp_path: Path) -> None:
        settings = {"batch_size": 20, "seed": 1, "num_workers": 0}
        whole, first, second = self.module(), self.module(), self.module()
        self.trainer(tmp_path, max_steps=7).fit(whole, train.loader(**settings))
        trainer = self.trainer(tmp_path, max_steps=3)
        trainer.fit(first, train.loader(**settings))
        trainer.save_checkpoint(tmp_path / "a.ckpt")
        loader = train.loader(**settings)
        self.trainer(tmp_path, max_steps=7).fit(
            second, loader, ckpt_path=tmp_path / "a.ckpt", weights_only=False
        )
        seen = first.seen + second.seen
        assert len(seen) == len(whole.seen) == 7
        assert all(torch.equal(a, b) for a, b in zip(seen, whole.seen, strict=True))


def test_accelerate(train: RecordDataset) -> None:
    accelerate = pytest.importorskip("accelerate", reason="pip install -e '.[frameworks]'")
    accelerator = accelerate.Accelerator(cpu=True)
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(train, batch_size=25, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    ours = train.loader(
        batch_size=25, rank=accelerator.process_index, world_size=accelerator.num_processes, num_workers=0
    )
    assert sum(len(labels) for _, labels in ours) == 100


@pytest.mark.parametrize("use_prefetcher", [False, True])
def test_timm_s_create_loader(split: Path, use_prefetcher: bool) -> None:
    """timm's loader sets the dataset's transform, as in timm's train.py."""
    timm = pytest.importorskip("timm", reason="pip install -e '.[frameworks]'")
    dataset = pcr.open(split, scan="group_5", label="parity")
    loader = timm.data.create_loader(
        dataset,
        input_size=(3, 16, 16),
        batch_size=20,
        is_training=True,
        use_prefetcher=use_prefetcher,
        re_prob=0.25,
        num_workers=1,
        persistent_workers=False,
        pin_memory=False,
        device=torch.device("cpu"),
    )
    images, labels = next(iter(loader))
    assert (
        images.shape == (20, 3, 16, 16) and images.dtype == torch.float32 and set(labels.tolist()) == {0, 1}
    )


def test_torchdata_s_stateful_loader(train: RecordDataset) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="pip install -e '.[frameworks]'")
    ordered = copy.copy(train)
    ordered.transform = v2.Compose([v2.CenterCrop(16)])
    loader = stateful.StatefulDataLoader(ordered, batch_size=10, num_workers=1)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    again = stateful.StatefulDataLoader(ordered, batch_size=10, num_workers=1)
    again.load_state_dict(loader.state_dict())
    assert torch.equal(next(iter(again))[0], next(batches)[0])
    assert isinstance(train.loader(batch_size=10, num_workers=0), stateful.Stateful)


def test_albumentations_are_seeded_by_the_loader(split: Path) -> None:
    albumentations = pytest.importorskip("albumentations", reason="pip install -e '.[frameworks]'")
    crop = albumentations.Compose([albumentations.RandomCrop(20, 20), albumentations.HorizontalFlip()])
    dataset = pcr.open(split, scan="group_5", label="number", transform=crop)

    def batch(num_workers: int) -> Tensor:
        with dataset.loader(batch_size=30, seed=3, num_workers=num_workers) as loader:
            return next(iter(loader))[0].clone()

    assert batch(0).shape == (30, 20, 20, 3) and torch.equal(batch(0), batch(2))
