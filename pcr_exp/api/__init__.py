"""Records for anyone's training loop: `pcr_exp.open(...)` gives a dataset as torch has them, and its loader.

Users call `open`. The dataset (`dataset`) reads images one by one and in batches, for torch's `DataLoader`
and what is built on it; its `.loader()` (`loader`) is our own `RecordLoader`, which is faster and takes every
scan policy (`scan`). Neither asks for a type of this package.
"""
