"""The version of what a run computes, apart from its configuration and its images."""

NUMERICS = 2
"""Incremented when pixels, the order of samples, the splits or the identity of runs change.

It is part of a run's scientific identity: a run is never resumed with, skipped for, or averaged with one of
another number. Golden hashes (tests/test_numerics.py) fail if batches change and this number does not.

Pixels are the same on any CPU, except where `loader.decode=scaled` enlarges groups 1 and 2: there a few
values in a hundred differ by one grey level, because OpenCV rounds differently on different CPUs.

1: every run before the number existed. Each process shuffled and divided an order of its own.
2: epochs are laid out in fixed lanes, independent of the number of processes; decoded images are filtered
   when scaled down; splits are train, tune and val; the identity includes a key of the images.
"""
