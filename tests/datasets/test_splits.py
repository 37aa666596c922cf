from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.datasets.sample import holdout, sort_key, split_of

fractions = st.floats(0.05, 0.95)
seeds = st.integers(0, 2**32 - 1)


def test_holdout_is_that_of_scikit_learn():
    """The result equals the example in the documentation of sklearn.model_selection.train_test_split."""
    assert holdout(5, 0.33, 42) == ([2, 0, 3], [1, 4])


def test_holdout_rounds_val_up():
    train, val = holdout(10_015, 0.2, 42)
    assert (len(train), len(val)) == (8_012, 2_003)


@given(st.integers(2, 300), fractions, seeds)
def test_holdout_covers_everything_once(num: int, fraction: float, seed: int):
    train, val = holdout(num, fraction, seed)
    assert sorted(train + val) == list(range(num))
    assert 0 <= len(val) - fraction * num < 1
    assert holdout(num, fraction, seed) == (train, val)


names = st.lists(st.text(min_size=1), min_size=1, max_size=60, unique=True)


def splits(groups: list[str], fractions: tuple[float, float], seed: int) -> dict[str, str]:
    val, tune = fractions
    return {group: split_of(group, val_fraction=val, tune_fraction=tune, seed=seed) for group in groups}


@given(names, st.text(min_size=1), st.tuples(fractions, fractions), seeds)
def test_a_new_image_moves_no_other(groups: list[str], new: str, shares: tuple[float, float], seed: int):
    before = splits(groups, shares, seed)
    assert splits([*groups, new], shares, seed).items() >= before.items()
    assert set(before.values()) <= {"train", "tune", "val"}
    order = sorted(groups, key=sort_key)
    assert [group for group in sorted({*groups, new}, key=sort_key) if group != new or new in groups] == order


@given(names, fractions, fractions, fractions, seeds)
def test_another_share_moves_nothing_across_the_other_border(
    groups: list[str], one: float, other: float, fixed: float, seed: int
):
    low, high = sorted((one, other))
    for group in groups:
        few = split_of(group, val_fraction=fixed, tune_fraction=low, seed=seed)
        many = split_of(group, val_fraction=fixed, tune_fraction=high, seed=seed)
        assert (few, many) in {("train", "train"), ("train", "tune"), ("tune", "tune"), ("val", "val")}
        few = split_of(group, val_fraction=low, tune_fraction=fixed, seed=seed)
        many = split_of(group, val_fraction=high, tune_fraction=fixed, seed=seed)
        assert many in (few, "val")


def test_shares_are_as_asked_for():
    groups = [f"train/cat/{i:04d}.jpg" for i in range(10_000)]
    counts = Counter(splits(groups, (0.2, 0.1), 42).values())
    assert abs(counts["val"] - 2000) < 160  # four standard deviations
    assert abs(counts["tune"] - 800) < 110
    assert Counter(splits(groups, (0, 0), 42).values()) == {"train": 10_000}


def test_membership_is_the_same_on_every_machine():
    found = splits([f"{i}.jpg" for i in range(12)], (0.3, 0.3), 42)
    letters = "".join({"train": ".", "tune": "t", "val": "v"}[split] for split in found.values())
    assert letters == "v..tt.v.v.t.", (
        "changing membership changes what every run is trained on and reported on"
    )


def test_seed_changes_the_split():
    groups = [str(i) for i in range(100)]
    assert splits(groups, (0.2, 0.1), 0) != splits(groups, (0.2, 0.1), 1)
    assert holdout(100, 0.2, 0) != holdout(100, 0.2, 1)
