"""Laws of the throughput model, for arbitrary numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.analysis.plan import (
    bandwidth_images_per_s,
    epochs_per_h,
    fill_s,
    images_per_s,
    in_flight_images_per_s,
    knee_image_bytes,
    reads_in_flight,
    roofline_images_per_s,
    time_to_accuracy_s,
)

RATES = st.floats(1e-2, 1e9)
SIZES = st.floats(1e2, 1e7)
FACTORS = st.floats(1.0, 100.0)


@given(SIZES, RATES, RATES, FACTORS)
def test_more_bandwidth_is_never_slower_and_fewer_bytes_neither(
    size: float, bandwidth: float, compute: float, factor: float
) -> None:
    rate = roofline_images_per_s(size, bandwidth_bytes_per_s=bandwidth, compute_images_per_s=compute)
    wider = roofline_images_per_s(
        size, bandwidth_bytes_per_s=bandwidth * factor, compute_images_per_s=compute
    )
    smaller = roofline_images_per_s(
        size / factor, bandwidth_bytes_per_s=bandwidth, compute_images_per_s=compute
    )
    assert wider >= rate and smaller >= rate
    # Reading `factor` times fewer bytes gains at most that factor, the paper's bound on the speed-up.
    assert smaller <= rate * factor * (1 + 1e-9)
    assert rate <= compute and rate <= bandwidth_images_per_s(bandwidth, size)


@given(SIZES, RATES, RATES, st.floats(1e-9, 1.0), FACTORS)
def test_seeks_take_their_time_from_the_bytes(
    size: float, bandwidth: float, compute: float, seek: float, factor: float
) -> None:
    rate = bandwidth_images_per_s(bandwidth, size, seek_s_per_image=seek)
    assert 1 / rate == pytest.approx(size / bandwidth + seek)
    # However few the bytes and however fast the transfer, seeks limit the rate.
    assert bandwidth_images_per_s(bandwidth, size / factor, seek_s_per_image=seek) <= 1 / seek * (1 + 1e-9)
    assert bandwidth_images_per_s(math.inf, size, seek_s_per_image=seek) == pytest.approx(1 / seek)
    limits = {
        "bandwidth_bytes_per_s": bandwidth,
        "compute_images_per_s": compute,
        "seek_s_per_image": seek,
    }
    assert roofline_images_per_s(size, **limits) == min(compute, rate)
    knee = knee_image_bytes(**limits)
    if seek * compute < 0.999:
        assert bandwidth_images_per_s(bandwidth, knee, seek_s_per_image=seek) == pytest.approx(compute)
    elif seek * compute > 1.001:
        assert knee < 0


@given(RATES, RATES, st.floats(1e-9, 1e-3))
def test_the_knee_is_continuous_and_where_both_limits_meet(
    bandwidth: float, compute: float, step: float
) -> None:
    knee = knee_image_bytes(bandwidth_bytes_per_s=bandwidth, compute_images_per_s=compute)
    assert bandwidth_images_per_s(bandwidth, knee) == pytest.approx(compute)
    below, above = (
        roofline_images_per_s(knee * factor, bandwidth_bytes_per_s=bandwidth, compute_images_per_s=compute)
        for factor in (1 - step, 1 + step)
    )
    assert below == pytest.approx(compute, rel=1e-9)
    assert above == pytest.approx(compute, rel=2 * step + 1e-9)
    assert above <= below * (1 + 1e-9)


@given(st.dictionaries(st.sampled_from(["compute", "decode", "bandwidth", "requests"]), RATES, min_size=1))
def test_the_smallest_limit_bounds_and_is_named(limits: dict[str, float]) -> None:
    rate, bound = images_per_s(limits)
    assert rate == limits[bound] == min(limits.values())


def test_no_limit_is_no_bound() -> None:
    assert images_per_s({"compute": 5.0, "bandwidth": math.inf}) == (5.0, "compute")
    assert images_per_s({"compute": math.inf, "decode": math.inf}) == (math.inf, "compute")


@given(st.integers(1, 512), st.floats(1e-4, 1.0), SIZES, RATES)
def test_littles_law_is_its_own_inverse(
    count: int, latency_s: float, read_bytes: float, bandwidth: float
) -> None:
    images = in_flight_images_per_s(
        count, 64, latency_s=latency_s, read_bytes=read_bytes, bandwidth_bytes_per_s=bandwidth
    )
    back = reads_in_flight(images / 64, latency_s=latency_s, transfer_s=read_bytes / bandwidth)
    assert back == pytest.approx(count)


def test_littles_law_in_numbers() -> None:
    # 4 reads in flight, each taking 200 ms for 8 images, make 20 reads a second.
    at_hand = {"latency_s": 0.2, "read_bytes": 1e5, "bandwidth_bytes_per_s": math.inf}
    assert in_flight_images_per_s(4, 8, **at_hand) == pytest.approx(160)
    # A single reader also pays for the seek.
    assert in_flight_images_per_s(1, 8, **at_hand, seek_s=0.2) == pytest.approx(20)
    at_hand["latency_s"] = 0.0
    assert in_flight_images_per_s(4, 8, **at_hand) == math.inf


@given(SIZES, st.lists(RATES, min_size=1, max_size=4))
def test_filling_takes_what_the_slowest_stage_does_not_hide(window: float, rates: list[float]) -> None:
    limits = {str(i): rate for i, rate in enumerate(rates)}
    expected = sum(window / rate for rate in sorted(rates)[1:])
    assert fill_s(window, limits) == pytest.approx(expected, rel=1e-6, abs=1e-6 * window / min(rates))


def test_epochs_and_hours() -> None:
    assert epochs_per_h(1000, 10) == 36
    assert time_to_accuracy_s(3, 1000, 100) == 30
    assert time_to_accuracy_s(3, 1000, 100, start_s=2) == 32
