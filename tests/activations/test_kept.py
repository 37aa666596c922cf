"""Bytes that a run reports as saved for backward."""

import pytest
import torch
from activation_models import chain_model, images

from pcr_exp.activations.hooks import ConvInputs
from pcr_exp.activations.kept import SavedBytes
from pcr_exp.activations.packed import pack
from pcr_exp.activations.quantise import QuantiseCodec


def test_kept_bytes_are_those_of_what_backward_needs() -> None:
    model, inputs, kept = chain_model(), images(4, 12), SavedBytes(1)
    with kept.measure(0):
        loss = model(inputs.clone()).square().mean()
    # The input's copy, and the output of each of four in-place ReLUs, which replaces its convolution's.
    wanted = 4 * (inputs.numel() + 4 * 4 * 8 * 12 * 12)
    assert wanted <= kept.columns()["kept_bytes_max"] <= wanted + 4 * loss.numel()  # type: ignore[operator]


def test_a_look_every_so_often_gives_mean_and_largest() -> None:
    kept = SavedBytes(2)
    assert kept.columns() == {"kept_bytes_mean": None, "kept_bytes_max": None}
    made = []
    for step, num_values in enumerate((10, 1000, 30, 1000)):
        with kept.measure(step):
            made.append(torch.zeros(num_values) + 1)
    assert kept.columns() == {"kept_bytes_mean": 80, "kept_bytes_max": 120}
    resumed = SavedBytes(2)
    resumed.load_state_dict(kept.state_dict())
    with resumed.measure(4):
        made.append(torch.ones(5))
    assert resumed.columns() == {"kept_bytes_mean": 60, "kept_bytes_max": 120}


def test_compression_is_seen() -> None:
    model, inputs = chain_model(), images(4, 12)
    seen = []
    for bound in (None, 0.1):
        hooks = bound and ConvInputs(model, lambda _, values: pack(values, QuantiseCodec(), 0.1))
        if hooks:
            hooks.begin(watch_gradients=False)
        kept = SavedBytes(1)
        with kept.measure(0):
            loss = model(inputs.clone()).square().mean()
        seen.append(kept.columns()["kept_bytes_max"])
        loss.backward()
    # The last ReLU's output stays uncompressed, because no convolution follows.
    assert seen[1] < 0.5 * seen[0] + inputs.numel()  # type: ignore[operator]


def test_looking_changes_no_gradient() -> None:
    gradients = []
    for interval in (1, 2):
        model, kept = chain_model(), SavedBytes(interval)
        with kept.measure(1):
            loss = model(images()).square().mean()
        loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))  # type: ignore[arg-type]


def test_a_failing_update_is_no_look() -> None:
    kept = SavedBytes(1)
    with pytest.raises(RuntimeError), kept.measure(0):
        raise RuntimeError("out of memory")
    assert kept.columns()["kept_bytes_mean"] is None
