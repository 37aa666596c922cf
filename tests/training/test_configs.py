"""Every YAML file of the model, training and tracking groups composes as in a run."""

from pathlib import Path

import pytest
from composing import compose

from pcr_exp.training.models import check_name

CONFIGS = Path(__file__).parents[2] / "configs"


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


@pytest.mark.parametrize("option", options("model"))
def test_every_model_exists(option: str) -> None:
    extra = ["model.name=mobilenet_v3_small"] if option in ("torchvision", "timm") else []
    config = compose("train", f"model={option}", "dataset=imagenet", *extra)
    if option != "timm":  # timm need not be installed
        check_name(config.model)
    named = {"torchvision": "mobilenet_v3_small", "timm": "mobilenet_v3_small", "paper": "resnet18"}
    assert config.model.name == named.get(option, option)


@pytest.mark.parametrize("option", options("training"))
def test_every_recipe_can_be_used(option: str) -> None:
    assert compose("train", f"training={option}", "dataset=imagenet").training.epochs >= 1


def test_the_paper_s_recipe_follows_dataset_and_batch_size() -> None:
    training = compose("train", "training=paper", "dataset=imagenet").training
    assert (training.epochs, training.batch_size, training.lr_milestones) == (90, 128, [30, 60])
    assert (training.image_size, training.eval_image_size) == (160, 224)
    assert training.learning_rate == pytest.approx(0.1 * 128 / 256)
    assert compose(
        "train", "training=paper", "training.batch_size=512"
    ).training.learning_rate == pytest.approx(0.2)


def test_the_paper_s_rate_is_that_of_the_global_batch() -> None:
    """The paper's ten workers have 128 images each, so 0.1 per 256 images makes 0.5."""
    ten = ("training=paper", "dataset=imagenet", "world_size=10", "loader.lanes=10")
    assert compose("train", *ten).training.learning_rate == pytest.approx(0.5)
    together = compose("train", "training=paper", "dataset=imagenet", "training.global_batch_size=1024")
    assert together.training.learning_rate == pytest.approx(0.4)
    assert compose("train", "training=paper_dali", *ten[1:]).training.learning_rate == 0.1


def test_the_paper_fine_tunes_where_the_dataset_says_so() -> None:
    assert compose("train", "model=paper", "dataset=ham10000").model.pretrained
    assert not compose("train", "model=paper", "dataset=imagenet").model.pretrained


def test_the_older_release_does_not_scale_its_rate() -> None:
    training = compose("train", "training=paper_dali", "training.batch_size=512").training
    assert (training.learning_rate, training.warmup_epochs, training.image_size) == (0.1, 5, 224)


def test_evaluation_is_at_the_training_size_unless_said_otherwise() -> None:
    assert compose("train", "training=small", "training.image_size=96").training.eval_image_size == 96


@pytest.mark.parametrize(
    ("option", "name", "mode"),
    [("none", "none", "offline"), ("wandb", "wandb", "offline"), ("wandb_online", "wandb", "online")],
)
def test_tracking_is_offline_unless_asked(option: str, name: str, mode: str) -> None:
    tracking = compose("train", f"tracking={option}").tracking
    assert (tracking.name, tracking.mode) == (name, mode)
