"""Features: the content of each group, the cache on disk, and images that cannot be decoded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from tolerance_images import GROUPS, SIZE_PX, Seen, backbone, image_files, write_samples
from torch import nn

from pcr_exp.datasets.sample import Dataset
from pcr_exp.errors import ConfigError, ImageError, RecordError
from pcr_exp.images import decode as decode_module
from pcr_exp.images.decode import decode
from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.images.transcode import to_progressive
from pcr_exp.measuring.tolerance import features as module
from pcr_exp.measuring.tolerance import images as image_module
from pcr_exp.measuring.tolerance.features import extract_features
from pcr_exp.measuring.tolerance.images import choose_samples, similarity_of_groups


def test_the_highest_group_shows_the_file_and_lower_ones_less(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, "fine", 4)
    views = image_files(samples).views(1)
    original = samples[1].path.read_bytes()
    assert views.crops.shape == (len(GROUPS), SIZE_PX, SIZE_PX, 3)
    np.testing.assert_array_equal(views.crops[-1], decode(original))
    detail = np.abs(np.diff(views.crops.astype(int), axis=2)).mean((1, 2, 3))
    assert detail[0] < 2 and detail[1] < detail[2] / 4, "stripes of two pixels arrive with the fifth scan"
    assert views.original_bytes == len(original)
    # All pieces plus the end-of-image marker make up the progressive file.
    assert views.group_bytes[-1] + 2 == len(to_progressive(original))
    assert (np.diff(views.group_bytes) > 0).all()


def test_features_are_what_the_head_would_have_been_given(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, "colour", 7)
    found = extract_features(image_files(samples), backbone(), folder=None)
    assert found.values.shape == (len(GROUPS), 7, 4) and found.rejected == {}
    red_green_blue = [cv2.imread(str(s.path))[..., ::-1].reshape(-1, 3).mean(0) / 255 for s in samples]
    np.testing.assert_allclose(found.values[-1, :, :3], red_green_blue, atol=1e-3)


def test_similarity_of_a_group_is_that_of_its_crops(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, "fine", 6)
    images = image_files(samples)
    found = similarity_of_groups(images, [1, 4], num_threads=2)
    assert found.shape == (len(GROUPS), 2) and found.dtype == np.float32
    crops = images.views(4).crops
    np.testing.assert_allclose(found[:, 1], [ms_ssim(crops[-1], crop).value for crop in crops], rtol=1e-6)
    assert (found[-1] == 1).all() and (found[0] < 1).all()


def test_kept_features_are_not_made_again(tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "images", "colour", module.CHUNK_IMAGES + 5)
    first, second = Seen(), Seen()
    second.load_state_dict(first.state_dict())
    made = extract_features(image_files(samples), backbone(first), folder=tmp_path / "kept")
    told: list[tuple[int, int]] = []
    kept, look = tmp_path / "kept", backbone(second)
    again = extract_features(image_files(samples), look, folder=kept, progress=lambda *n: told.append(n))
    np.testing.assert_array_equal(made.values, again.values)
    np.testing.assert_array_equal(made.group_bytes, again.group_bytes)
    assert first.calls > 0 and second.calls == 0
    assert told == [(module.CHUNK_IMAGES, len(samples)), (len(samples), len(samples))]
    samples[0].path.write_bytes(samples[1].path.read_bytes())
    changed = extract_features(image_files(samples), look, folder=kept)
    assert second.calls > 0 and not np.array_equal(changed.values[:, 0], made.values[:, 0])
    np.testing.assert_array_equal(changed.values[:, 1:], made.values[:, 1:])


def test_an_interrupted_extraction_goes_on(tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "images", "colour", 2 * module.CHUNK_IMAGES)

    def interrupt(done: int, _: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_features(image_files(samples), backbone(), folder=tmp_path / "kept", progress=interrupt)
    assert list((tmp_path / "kept").glob("*.npz")) and not list((tmp_path / "kept").glob("*.tmp"))


def test_another_network_or_other_groups_have_features_of_their_own(tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "images", "colour", 3)

    class Other(Seen):
        pass

    for files, model in (
        (image_files(samples), Seen()),
        (image_files(samples, (1, 10)), Seen()),
        (image_files(samples), Other()),
    ):
        extract_features(files, backbone(model), folder=tmp_path / "kept")
        assert model.calls == 1
    assert len(list((tmp_path / "kept").iterdir())) == 3


def test_images_that_cannot_be_decoded_are_named(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, "colour", 3)
    samples[1].path.write_bytes(b"")
    found = extract_features(image_files(samples), backbone(), folder=None)
    assert found.positions.tolist() == [0, 2] and found.values.shape[1] == 2
    assert found.rejected == {"1.jpg": "zero-byte file"}
    with pytest.raises(ImageError, match=r"none of the 1 images can be decoded\. The first, 1\.jpg: zero"):
        extract_features(image_files(samples[1:2]), backbone(), folder=None)


def test_images_that_were_rejected_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = write_samples(tmp_path / "images", "colour", 3)
    with monkeypatch.context() as patched:
        patched.setattr(image_module, "join_pieces", fail_once(image_module.join_pieces))
        first = extract_features(image_files(samples), backbone(), folder=tmp_path / "kept")
    assert first.rejected == {"0.jpg": "not now"}
    again = extract_features(image_files(samples), backbone(), folder=tmp_path / "kept")
    assert again.rejected == {} and again.positions.tolist() == [0, 1, 2]
    few = image_files(samples, max_pixels=SIZE_PX**2 - 1)
    with pytest.raises(ImageError, match="more than max_pixels"):
        extract_features(few, backbone(), folder=tmp_path / "kept")


def fail_once(function: Callable[..., Any]) -> Callable[..., Any]:
    failures = [RecordError("not now")]

    def either(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return function(*args)

    return either


def test_without_a_transcoder_no_image_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = write_samples(tmp_path, "colour", 1)
    monkeypatch.setattr(decode_module, "find_writer", fail_once(lambda _script: None))
    with pytest.raises(RecordError, match="not now"):
        image_files(samples)


def test_a_network_without_a_linear_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match="Conv2d has no linear layer; features are"):
        backbone(nn.Conv2d(3, 2, 1))


def test_the_head_is_the_last_linear_layer() -> None:
    inside, head = nn.Linear(12, 5), nn.Linear(5, 3)
    model = nn.Sequential(nn.Flatten(), inside, nn.ReLU(), nn.Sequential(nn.Dropout(), head))
    images = np.random.default_rng(0).integers(0, 255, (2, 2, 2, 3), dtype=np.uint8)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).flatten(1) / 255
    wanted = torch.relu(pixels @ inside.weight.T + inside.bias).detach().numpy()
    np.testing.assert_allclose(backbone(model)(images), wanted, atol=1e-5)


def test_fewer_images_are_a_part_of_more_and_of_the_splits_that_are_asked_for(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, "colour", 9)
    splits = {"train": samples[:5], "tune": samples[5:7], "val": samples[7:]}
    dataset = Dataset("it", splits, {"class": ["a", "b"]})
    every = choose_samples(dataset, ["train", "tune"], None)
    assert {sample.id for sample in every} == {f"{i}.jpg" for i in range(7)}
    assert choose_samples(dataset, ["tune", "train"], 3) == every[:3]
