"""Compressed convolution inputs against plain PyTorch: gradients, masks, aliases, memory, leaks."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torchvision  # type: ignore[import-untyped]
from activation_models import Residual, Update, chain_model, forward_and_backward, images, residual_model
from torch import Tensor, nn

from pcr_exp.activations.codec import Codec, LosslessCodec
from pcr_exp.activations.hooks import ConvInputs, LayerTally
from pcr_exp.activations.kept import LiveBytes
from pcr_exp.activations.packed import pack
from pcr_exp.activations.quantise import QuantiseCodec
from pcr_exp.activations.recompute import RecomputedBlocks
from pcr_exp.errors import RunError


@contextmanager
def compressed(model: nn.Module, codec: Codec, bound: float) -> Iterator[ConvInputs]:
    inputs = ConvInputs(model, lambda _, values: pack(values, codec, bound))
    inputs.begin(watch_gradients=False)
    yield inputs
    inputs.remove()


def assert_same(one: Update, other: Update) -> None:
    assert one.loss == other.loss
    assert one.gradients.keys() == other.gradients.keys()
    for name, gradient in one.gradients.items():
        assert torch.equal(gradient, other.gradients[name]), name


def kept_bytes(model: nn.Module, inputs: Tensor) -> int:
    """Return the bytes saved for backward."""
    with LiveBytes() as live:
        out = model(inputs.clone())
        loss = out.square().mean()
        del out
        kept = live.num_bytes
        loss.backward()
    return kept


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("amp", [None, torch.bfloat16])
@pytest.mark.parametrize("codec", [LosslessCodec(), QuantiseCodec()])
def test_a_bound_towards_zero_gives_torch_s_own_gradients(
    codec: Codec, amp: torch.dtype | None, channels_last: bool
) -> None:
    model, inputs = residual_model(), images()
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    plain = forward_and_backward(model, inputs, amp=amp)
    with compressed(model, codec, 1e-12) as hooks:
        assert_same(forward_and_backward(model, inputs, amp=amp), plain)
        assert set(hooks.tallies) == {
            *("0", "4.conv1", "4.conv2", "4.shortcut", "5.conv1", "5.conv2", "5.shortcut")
        }


@pytest.mark.parametrize("amp", [None, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_an_error_reaches_weight_gradients_of_convolutions_and_nothing_else(
    amp: torch.dtype | None, channels_last: bool
) -> None:
    model, inputs = residual_model(), images()
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    plain = forward_and_backward(model, inputs, amp=amp)
    with compressed(model, QuantiseCodec(), 0.3):
        lossy = forward_and_backward(model, inputs, amp=amp)
    moved = {
        name for name, gradient in lossy.gradients.items() if not torch.equal(gradient, plain.gradients[name])
    }
    weights = {f"{name}.weight" for name, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    assert moved == weights
    assert lossy.loss == plain.loss


def test_gradients_approach_with_the_bound() -> None:
    model, inputs = chain_model(), images()
    plain = forward_and_backward(model, inputs)
    errors = []
    for bound in (0.1, 0.01, 0.001):
        with compressed(model, QuantiseCodec(), bound):
            lossy = forward_and_backward(model, inputs)
        errors.append(float((lossy.gradients["2.weight"] - plain.gradients["2.weight"]).norm()))
    assert errors[0] > 5 * errors[1] > 25 * errors[2] > 0


def test_masks_stay_exact_where_small_values_would_round_to_zero() -> None:
    """Input gradients pass through every ReLU and depend only on masks and weights."""
    model, inputs = chain_model(), images().requires_grad_()
    model(inputs).square().mean().backward()
    plain = inputs.grad
    inputs.grad = None
    with compressed(model, QuantiseCodec(), 10.0):
        model(inputs).square().mean().backward()
    assert plain is not None and inputs.grad is not None
    assert torch.equal(inputs.grad, plain)


def test_two_convolutions_of_one_tensor_keep_it_once() -> None:
    model = residual_model()
    with compressed(model, LosslessCodec(), 1.0) as hooks:
        forward_and_backward(model, images())
        assert hooks.shared_with == {"4.shortcut": "4.conv1", "5.shortcut": "5.conv1"}
        assert hooks.tallies["4.shortcut"].raw_bytes == 0
        assert hooks.tallies["4.conv1"].raw_bytes == 4 * 8 * 6 * 6 * 4


def test_padding_that_is_not_zeros_is_packed_for_itself() -> None:
    torch.manual_seed(0)
    block = Residual(3)
    block.conv1.padding_mode = "reflect"
    block.conv1 = nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect", bias=False)
    plain = forward_and_backward(block, images())
    with compressed(block, LosslessCodec(), 1.0) as hooks:
        assert_same(forward_and_backward(block, images()), plain)
        assert hooks.tallies["conv1"].raw_bytes == 4 * 3 * 14 * 14 * 4
        assert hooks.shared_with == {}


class ChangesItsInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        once = self.one(x)
        x.mul_(2)  # plain PyTorch refuses this in backward, because it has saved x itself
        return once + self.two(x)


def test_a_tensor_that_changed_is_packed_again() -> None:
    torch.manual_seed(0)
    model = ChangesItsInput()
    with compressed(model, LosslessCodec(), 1.0):
        gradients = forward_and_backward(model, images()).gradients
    torch.testing.assert_close(gradients["two.weight"], 2 * gradients["one.weight"])


def test_memory_falls_by_what_the_tallies_say() -> None:
    model, inputs = chain_model(), images(8, 32)
    plain = kept_bytes(model, inputs)
    with compressed(model, QuantiseCodec(), 0.01) as hooks:
        packed = kept_bytes(model, inputs)
        saved = sum(tally.raw_bytes - tally.packed_bytes for tally in hooks.tallies.values())
        held = sum(tally.held_bytes for tally in hooks.tallies.values())
    assert held == 0
    assert plain - packed == saved
    assert packed < 0.45 * plain  # the last ReLU's output feeds no convolution


class KeepsItsInput(nn.Module):
    """A product saves both factors, so the convolution's input stays in memory beside its compressed copy."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        return self.conv(x) + self.scale * x


def test_compressing_one_of_several_aliases_is_not_called_a_saving() -> None:
    model, inputs = KeepsItsInput(), images(8, 32)
    plain_gradients, plain = forward_and_backward(model, inputs), kept_bytes(model, inputs)
    with compressed(model, QuantiseCodec(), 0.01) as hooks:
        packed = kept_bytes(model, inputs)
        tally = hooks.tallies["conv"]
        assert tally.held_bytes == tally.raw_bytes == inputs.nbytes
        assert packed == plain + tally.packed_bytes  # takes more memory, in fact
        lossy = forward_and_backward(model, inputs)
    assert torch.equal(lossy.gradients["scale"], plain_gradients.gradients["scale"])


def test_a_layer_that_runs_twice_has_the_share_of_both_inputs() -> None:
    tally = LayerTally()
    for share in (1, 3):
        values = (torch.arange(32) % 4 < share).float().view(2, 4, 2, 2)
        tally.add_input(pack(values, LosslessCodec(), 1.0), shared=False)
    assert tally.nonzero_share == 0.5


def test_evaluation_and_frozen_layers_are_left_alone() -> None:
    model = residual_model()
    with compressed(model, QuantiseCodec(), 0.1) as hooks:
        with torch.inference_mode():
            model(images())
        assert hooks.tallies == {}
        for parameter in model[4].parameters():
            parameter.requires_grad_(False)
        forward_and_backward(model, images())
        assert set(hooks.tallies) == {"0", "5.conv1", "5.conv2", "5.shortcut"}


def test_removed_hooks_leave_nothing() -> None:
    model = residual_model()
    plain = kept_bytes(model, images())
    with compressed(model, LosslessCodec(), 1.0):
        pass
    assert kept_bytes(model, images()) == plain


def test_backward_twice_decodes_twice() -> None:
    model = chain_model()
    with compressed(model, QuantiseCodec(), 0.1):
        loss = model(images()).square().mean()
        loss.backward(retain_graph=True)
        once = model[0].weight.grad.clone()  # type: ignore[union-attr, operator]
        loss.backward()
        assert torch.equal(model[0].weight.grad, 2 * once)  # type: ignore[arg-type]


def test_an_output_that_another_hook_changed_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    model[0].register_forward_hook(lambda _, __, out: out * 2)
    with (
        compressed(model, QuantiseCodec(), 0.1),
        pytest.raises(RunError, match=r"output of '0' was made by MulBackward0, wanted ConvolutionBackward0"),
    ):
        model(images())


class Halved(nn.Conv2d):
    """A convolution of half its input, which is what it saves for backward."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * 0.5)


class TwoBranches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Halved(3, 4, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return (self.a(x) + self.b(x)) * scale


def test_a_convolution_that_changes_its_input_shares_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 3, 1), TwoBranches(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    plain = forward_and_backward(model, images())
    with compressed(model, LosslessCodec(), 1e-12) as hooks:
        assert_same(forward_and_backward(model, images()), plain)
        assert hooks.shared_with == {}


def test_blocks_that_are_called_with_keywords_are_recomputed() -> None:
    class Keywords(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.block = TwoBranches()

        def forward(self, x: Tensor) -> Tensor:
            return self.block(x, scale=2.0).flatten(1)  # type: ignore[no-any-return]

    plain = forward_and_backward(Keywords(), images())
    recomputed = Keywords()
    RecomputedBlocks(recomputed)
    assert_same(forward_and_backward(recomputed, images()), plain)


@pytest.mark.parametrize("kind", ["compressed", "recomputed"])
def test_nothing_leaks_over_60_steps(kind: str) -> None:
    model, inputs = nn.Sequential(Residual(3)), images(1, 6)
    hooks: ConvInputs | RecomputedBlocks
    if kind == "compressed":
        model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU(inplace=True), nn.Conv2d(3, 3, 3))
        hooks = ConvInputs(model, lambda _, values: pack(values, QuantiseCodec(), 0.01))
    else:
        hooks = RecomputedBlocks(model)
    alive = []
    with LiveBytes() as live:
        for _ in range(60):
            if isinstance(hooks, ConvInputs):
                hooks.begin(watch_gradients=True)
            model.zero_grad()
            model(inputs).square().mean().backward()
            alive.append(live.num_bytes)
        gc.collect()
        num_objects = len(gc.get_objects())
        for _ in range(20):
            if isinstance(hooks, ConvInputs):
                hooks.begin(watch_gradients=True)
            model.zero_grad()
            model(inputs).square().mean().backward()
        gc.collect()
        assert len(gc.get_objects()) - num_objects < 20  # fewer than one per update
    assert alive[-1] <= alive[1]


@pytest.mark.parametrize("name", ["resnet18", "shufflenet_v2_x0_5", "squeezenet1_1", "mobilenet_v3_small"])
def test_torchvision_s_models_learn_the_same(name: str) -> None:
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, num_classes=5).train()
    inputs = images(4, 64)

    def seeded() -> Update:
        torch.manual_seed(1)  # for dropout
        return forward_and_backward(model, inputs)

    plain = seeded()
    with compressed(model, LosslessCodec(), 1.0) as hooks:
        assert_same(seeded(), plain)
        assert sum(tally.held_bytes for tally in hooks.tallies.values()) == 0
    with compressed(model, QuantiseCodec(), 0.01) as hooks:
        lossy = seeded()
    for kind in (nn.BatchNorm2d, nn.Linear):
        for parameter, gradient in lossy.of(kind, model).items():
            assert torch.equal(gradient, plain.gradients[parameter])
