from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.datasets.splits import holdout, stratified_holdout

fractions = st.floats(0.05, 0.95)
seeds = st.integers(0, 2**32 - 1)


def test_holdout_is_that_of_scikit_learn():
    """The example in the documentation of sklearn.model_selection.train_test_split."""
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


@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), fractions, seeds)
def test_stratified_holdout(classes: list[int], fraction: float, seed: int):
    train, val = stratified_holdout(classes, fraction, seed)
    assert sorted(train + val) == list(range(len(classes)))
    assert stratified_holdout(classes, fraction, seed) == (train, val)
    for class_index in set(classes):
        num = classes.count(class_index)
        num_val = sum(classes[i] == class_index for i in val)
        assert num_val == 0 if num == 1 else 1 <= num_val <= num - 1
        assert abs(num_val - fraction * num) <= 1


def test_seed_changes_the_split():
    classes = [0] * 50 + [1] * 50
    assert stratified_holdout(classes, 0.2, 0) != stratified_holdout(classes, 0.2, 1)
    assert holdout(100, 0.2, 0) != holdout(100, 0.2, 1)
