"""What every room may lean on: atomic files, locks, page cache, provenance, signals, randomness."""
