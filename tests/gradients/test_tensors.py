"""A model's tensors in one message, and the sender's state for each."""

import pytest
import torch
from torch import Tensor

from pcr_exp.config.components import schemas
from pcr_exp.errors import GradientError
from pcr_exp.gradients.codec import bundle, open_codec, unbundle
from pcr_exp.gradients.tensors import TensorCodec, is_small

CPU = torch.device("cpu")
SHAPES = {"conv": (4, 3, 3, 3), "norm": (600,), "tiny": (2, 5), "head": (10, 40), "none": (0, 3)}


def tensors(step: int = 0) -> list[tuple[str, Tensor]]:
    generator = torch.Generator().manual_seed(step)
    return [(name, torch.randn(shape, generator=generator)) for name, shape in SHAPES.items()]


def sender(name: str = "threelc") -> TensorCodec:
    config = schemas("gradients")[name](name=name, **({"sparsity": 1.5} if name == "threelc" else {}))
    return TensorCodec(lambda tensor: open_codec(config, seed=len(tensor)), min_values=50)


@pytest.mark.parametrize("name", ["none", "threelc", "onebit", "topk", "int8", "ternary_stochastic"])
def test_all_tensors_arrive_in_their_shapes(name: str) -> None:
    message, sent = sender(name).encode(tensors())
    arrived = sender(name).decode(message, list(SHAPES.values()))
    for (_, tensor), one, other in zip(tensors(), sent, arrived, strict=True):
        assert one.shape == tensor.shape
        assert torch.equal(one, other)


def test_small_tensors_and_vectors_are_sent_as_they_are() -> None:
    assert is_small((600,), 50)
    assert is_small((7, 7), 50)
    assert not is_small((5, 10), 50)
    _, sent = sender().encode(tensors())
    kept = {name: torch.equal(tensor, one) for (name, tensor), one in zip(tensors(), sent, strict=True)}
    assert kept == {"conv": False, "norm": True, "tiny": True, "head": False, "none": True}
    codec = sender()
    codec.encode(tensors())
    assert codec.state_dict().keys() == {"conv", "head"}
    assert codec.num_plain(list(SHAPES.values())) == 600 + 10


def test_a_message_is_four_bytes_a_large_tensor_and_once_more_than_its_parts() -> None:
    message, _ = sender("int8").encode(tensors())
    assert len(message) == 4 + 2400 + 40 + 4 + (4 + 108) + 4 + (4 + 400)


def test_half_precision_and_other_memory_orders_are_taken() -> None:
    conv = torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    strided = conv.to(memory_format=torch.channels_last)
    assert torch.equal(sender().encode([("conv", conv)])[0], sender().encode([("conv", strided)])[0])
    _, (sent,) = sender("none").encode([("conv", conv.half())])
    assert torch.equal(sent, conv.half().float())


@pytest.mark.parametrize("name", ["threelc", "onebit", "topk", "ternary_stochastic"])
def test_a_restored_sender_goes_on_as_if_nothing_had_happened(name: str) -> None:
    codec, restored = sender(name), sender(name)
    for step in range(3):
        codec.encode(tensors(step))
    saved = {key: dict(state) for key, state in codec.state_dict().items()}
    restored.load_state_dict(saved, CPU)
    for step in range(3, 6):
        assert torch.equal(restored.encode(tensors(step))[0], codec.encode(tensors(step))[0])


@pytest.mark.parametrize("name", ["threelc", "ternary_stochastic"])
def test_a_tensors_bytes_do_not_depend_on_the_others(name: str) -> None:
    ahead, behind = sender(name), sender(name)
    for step in range(3):
        one = dict(zip(SHAPES, ahead.encode(tensors(step))[1], strict=True))
        other = dict(zip(reversed(SHAPES), behind.encode(tensors(step)[::-1])[1], strict=True))
        assert all(torch.equal(one[name], other[name]) for name in SHAPES)


def test_bundles_come_back() -> None:
    messages = [torch.arange(size, dtype=torch.uint8) for size in (0, 3, 200, 1)]
    found = unbundle(bundle(messages), 4)
    assert [message.tolist() for message in found] == [message.tolist() for message in messages]


@pytest.mark.parametrize(("cut", "num_messages"), [(1, 2), (0, 1), (0, 3), (11, 2)])
def test_a_bundle_of_others_is_refused(cut: int, num_messages: int) -> None:
    data = bundle([torch.zeros(5, dtype=torch.uint8), torch.zeros(3, dtype=torch.uint8)])
    with pytest.raises(
        GradientError, match=rf"messages has {16 - cut} bytes, but its {num_messages} messages need"
    ):
        unbundle(data[: len(data) - cut], num_messages)
