"""Records for any training loop: `pcr_exp.open(...)` returns a PyTorch dataset, which also has a loader.

Users call `open`. The dataset (`dataset`) reads images one by one and in batches, for torch's `DataLoader`
and libraries built on it. Its `.loader()` (`loader`) wraps our own `RecordLoader`, which is faster and
supports every scan policy (`scan`). Neither requires users to handle types of this package.
"""
