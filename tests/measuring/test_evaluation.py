"""Scores of images at every level, against networks whose answers are known."""

import cv2
import numpy as np
import pytest
import skimage.data
import torch
from torch import nn

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import ConfigError
from pcr_exp.loading.transform import EvalTransform
from pcr_exp.measuring.evaluation import (
    SCORE_COLUMNS,
    Trained,
    levels_of,
    outputs_of_classes,
    score_images,
)
from pcr_exp.records.encode import encode_split
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage
from pcr_exp.training.normalization import IMAGENET

CPU = torch.device("cpu")
NUM_IMAGES = 5


class Sharpness(nn.Module):
    """Class 1 where neighbouring pixels differ by more than `least` on average."""

    def __init__(self, least: float) -> None:
        super().__init__()
        self.least = least

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        sharp = images.diff(dim=-1).abs().mean(dim=(1, 2, 3)) - self.least
        return torch.stack([-sharp, sharp, torch.full_like(sharp, -99)], dim=1)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordSet, RecordSet]:
    """Baseline and progressive records of five noisy pictures, all of class 1 of two."""
    folder = tmp_path_factory.mktemp("evaluation")
    cat = skimage.data.chelsea()[..., ::-1]
    noise = np.random.default_rng(0).integers(0, 60, cat.shape)
    noisy = np.clip(cat.astype(int) + noise, 0, 255).astype(np.uint8)
    samples = []
    for i in range(NUM_IMAGES):
        path = folder / f"{i}.jpg"
        cv2.imwrite(str(path), noisy[:, 30 * i : 30 * i + 200], [cv2.IMWRITE_JPEG_QUALITY, 90])
        samples.append(Sample(id=path.name, path=path, labels={"kind": 1}))
    encode_split(
        samples,
        {"kind": ["smooth", "sharp"]},
        folder / "records",
        dataset="test",
        split="val",
        images_per_record=3,
        on_error="fail",
        num_workers=1,
        progress=lambda _done, _total: None,
    )
    storage = LocalStorage(folder / "records")
    return RecordSet(storage, "baseline"), RecordSet(storage, "pcr")


def test_a_row_for_every_network_level_and_image(records: tuple[RecordSet, RecordSet]) -> None:
    networks = [
        Trained("sharp", Sharpness(0.1), IMAGENET),
        Trained("never", Sharpness(99), IMAGENET, "group_1", 3),
    ]
    levels = levels_of(*records, groups=[1, 10], decodes=["unsmoothed", "libjpeg"])
    told = []
    scores = score_images(
        networks,
        levels,
        LoaderConfig(num_workers=0, antialias=False),
        EvalTransform(96, AugmentConfig(eval_crop_fraction=1.0)),
        label="kind",
        outputs=torch.tensor([0, 1]),
        batch_size=2,
        device=CPU,
        progress=lambda done, total: told.append((done, total)),
    )
    assert list(scores.columns) == SCORE_COLUMNS
    assert len(scores) == 2 * len(levels) * NUM_IMAGES == 2 * 5 * NUM_IMAGES
    assert told[-1] == (25, 25)
    right = scores.groupby(["model", "scan", "decode"])["top1"].mean()
    assert right["sharp", "baseline", "unsmoothed"] == right["sharp", "group_10", "libjpeg"] == 1
    assert right["sharp", "group_1", "unsmoothed"] == 0, "scan 1 has no detail"
    assert (right["never"] == 0).all()
    whole = scores[scores["model"] == "sharp"].pivot_table(
        index="image", columns=["scan", "decode"], values="loss"
    )
    assert (whole["baseline", "unsmoothed"] == whole["group_10", "unsmoothed"]).all(), "the same pixels"
    assert set(zip(scores["model"], scores["trained_on"], scores["seed"], strict=True)) == {
        ("sharp", "published", 0),
        ("never", "group_1", 3),
    }


def test_margins_are_of_the_second_class_over_the_first(records: tuple[RecordSet, RecordSet]) -> None:
    scores = score_images(
        [Trained("sharp", Sharpness(0.1), IMAGENET)],
        levels_of(*records, groups=[1], decodes=["unsmoothed"]),
        LoaderConfig(num_workers=0, antialias=False),
        EvalTransform(96, AugmentConfig(eval_crop_fraction=1.0)),
        label="kind",
        outputs=torch.tensor([0, 1]),
        batch_size=2,
        device=CPU,
        margins=True,
    )
    assert list(scores.columns) == [*SCORE_COLUMNS, "margin"]
    assert ((scores["margin"] > 0) == (scores["top1"] == 1)).all()
    assert set(scores["top1"]) == {0, 1}


def test_classes_stand_for_the_outputs_that_have_their_names() -> None:
    lines = ["n03 coffee", "n01", "n02 rocket"]
    assert outputs_of_classes(["n01", "n02"], lines, "f.txt").tolist() == [1, 2]
    with pytest.raises(
        ConfigError, match=r"classes=f\.txt: 3 classes, without n04, n05, .* and 1 more, which"
    ):
        outputs_of_classes(["n01", "n04", "n05", "n06", "n07", "n08", "n09"], lines, "f.txt")
    for wrong in (["n01", ""], ["n01", "n01"]):
        with pytest.raises(ConfigError, match=r"classes=f\.txt: a line is empty or comes twice"):
            outputs_of_classes(["n01"], wrong, "f.txt")
