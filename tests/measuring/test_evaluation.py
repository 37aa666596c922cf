"""Scores of images at every level, from networks whose answers are known."""

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import skimage.data
import torch
from torch import nn

from pcr_exp.config.dataset import AugmentConfig
from pcr_exp.config.loader import LoaderConfig
from pcr_exp.datasets.sample import Sample
from pcr_exp.errors import ConfigError, DatasetError, ImageError
from pcr_exp.images.decode import PROGRESSIVE
from pcr_exp.loading.transform import EvalTransform
from pcr_exp.measuring.evaluated_images import file_batches, record_batches
from pcr_exp.measuring.evaluation import (
    SCORE_COLUMNS,
    Level,
    LevelBatch,
    Trained,
    levels_of,
    outputs_of_classes,
    score_images,
)
from pcr_exp.records.encode import encode_split
from pcr_exp.records.reader import RecordSet
from pcr_exp.storage.local import LocalStorage
from pcr_exp.training.inputs import IMAGENET

CPU = torch.device("cpu")
NUM_IMAGES = 5
Records = dict[str, RecordSet]


class Sharpness(nn.Module):
    """Predicts class 1 if neighbouring pixels differ by more than `least` on average."""

    def __init__(self, least: float) -> None:
        super().__init__()
        self.least = least

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        sharp = images.diff(dim=-1).abs().mean(dim=(1, 2, 3)) - self.least
        return torch.stack([-sharp, sharp, torch.full_like(sharp, -99)], dim=1)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    """Five noisy pictures, all of class 1 out of two."""
    folder = tmp_path_factory.mktemp("evaluation")
    cat = skimage.data.chelsea()[..., ::-1]
    noise = np.random.default_rng(0).integers(0, 60, cat.shape)
    noisy = np.clip(cat.astype(int) + noise, 0, 255).astype(np.uint8)
    samples = []
    for i in range(NUM_IMAGES):
        path = folder / f"{i}.jpg"
        cv2.imwrite(str(path), noisy[:, 30 * i : 30 * i + 200], [cv2.IMWRITE_JPEG_QUALITY, 90])
        samples.append(Sample(id=path.name, path=path, labels={"kind": 1}))
    return samples


@pytest.fixture(scope="module")
def records(samples: list[Sample], tmp_path_factory: pytest.TempPathFactory) -> Records:
    """Records in both encodings."""
    folder = tmp_path_factory.mktemp("records")
    encode_split(
        samples,
        {"kind": ["smooth", "sharp"]},
        folder,
        dataset="test",
        split="val",
        images_per_record=3,
    )
    storage = LocalStorage(folder)
    return {encoding: RecordSet(storage, encoding) for encoding in ("baseline", "pcr")}


def transform() -> EvalTransform:
    return EvalTransform(96, AugmentConfig(eval_crop_fraction=1.0), antialias=False)


def from_records(records: Records, levels: list[Level]) -> Iterator[LevelBatch]:
    config = LoaderConfig(num_workers=0)
    return record_batches(records, levels, config, transform(), label="kind", batch_size=2)


def from_files(samples: list[Sample], levels: list[Level], on_error: str = "fail") -> Iterator[LevelBatch]:
    return file_batches(
        samples,
        levels,
        PROGRESSIVE,
        transform(),
        label="kind",
        batch_size=2,
        max_pixels=10**6,
        on_error=on_error,
        num_threads=2,
    )


def by_level(batches: Iterator[LevelBatch]) -> dict[Level, tuple[list[int], torch.Tensor, list[int]]]:
    """Return image numbers, images and labels by level."""
    every = list(batches)
    return {
        level: (
            [first + i for found, first, images, _ in every if found == level for i in range(len(images))],
            torch.cat([images for found, _, images, _ in every if found == level]),
            [int(number) for found, *_, labels in every if found == level for number in labels],
        )
        for level in {found for found, *_ in every}
    }


def test_files_show_what_records_of_them_show(samples: list[Sample], records: Records) -> None:
    levels = levels_of(groups=[1, 2, 5, 10], decodes=["unsmoothed", "libjpeg", "scaled"])
    wanted, got = by_level(from_records(records, levels)), by_level(from_files(samples, levels))
    assert set(wanted) == set(got) == set(levels) and len(levels) == 13
    for level in levels:
        assert wanted[level][0] == got[level][0] == list(range(NUM_IMAGES))
        assert torch.equal(wanted[level][1], got[level][1])
        assert wanted[level][2] == got[level][2] == [1] * NUM_IMAGES


def test_files_that_records_refuse(
    samples: list[Sample], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(samples[0].path.read_bytes()[:-500])
    bad = Sample("cut.jpg", cut, {"kind": 1})
    levels = levels_of(groups=[1], decodes=["scaled"])
    with pytest.raises(ImageError, match=r"cut\.jpg: .*set records.on_error=skip"):
        list(from_files([*samples[:3], bad], levels))
    with caplog.at_level("WARNING"):
        found = by_level(from_files([samples[0], bad, samples[1]], levels, "skip"))
    assert "1 image is left out, because records cannot store them: cut.jpg" in caplog.text
    assert all(numbers == [0, 1] for numbers, *_ in found.values())
    with pytest.raises(DatasetError, match=r"none of 1 images can be scored: cut\.jpg"):
        list(from_files([bad], levels, "skip"))


def test_a_row_for_every_network_level_and_image(records: Records) -> None:
    networks = [
        Trained("sharp", Sharpness(0.1), IMAGENET),
        Trained("never", Sharpness(99), IMAGENET, "group_1", 3),
    ]
    levels = levels_of(groups=[1, 10], decodes=["unsmoothed", "libjpeg"])
    told: list[int] = []
    scores = score_images(
        networks,
        from_records(records, levels),
        outputs=torch.tensor([0, 1]),
        device=CPU,
        progress=told.append,
    )
    assert list(scores.columns) == SCORE_COLUMNS
    assert len(scores) == 2 * len(levels) * NUM_IMAGES == 2 * 5 * NUM_IMAGES
    assert told[-1] == 25
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


def test_margins_are_of_the_second_class_over_the_first(records: Records) -> None:
    scores = score_images(
        [Trained("sharp", Sharpness(0.1), IMAGENET)],
        from_records(records, levels_of(groups=[1], decodes=["unsmoothed"])),
        outputs=torch.tensor([0, 1]),
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
        ConfigError, match=r"classes=f\.txt: the file has 3 classes, but lacks n04, n05, .* and 1 more, which"
    ):
        outputs_of_classes(["n01", "n04", "n05", "n06", "n07", "n08", "n09"], lines, "f.txt")
    for wrong in (["n01", ""], ["n01", "n01"]):
        with pytest.raises(ConfigError, match=r"classes=f\.txt: a line is empty or repeats a class"):
            outputs_of_classes(["n01"], wrong, "f.txt")
