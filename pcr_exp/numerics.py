"""The version of what a run computes, apart from its configuration and its images."""

NUMERICS = 2
"""Raised when pixels, the order of samples, the splits or the identity of runs change.

It is part of a run's scientific identity: a run of one number is never resumed, skipped for, or averaged with
one of another. Golden hashes (tests/test_numerics.py) fail when batches change and this number does not.

Pixels are the same on any CPU but where `loader.decode=scaled` enlarges groups 1 and 2: there a few in a
hundred values differ by one grey level, as OpenCV's code for that CPU rounds.

1: every run before the number existed. Each process cut and shuffled an order of its own.
2: epochs are laid in fixed lanes, which do not depend on how many processes train; decoded images are
   filtered when they shrink; splits are train, tune and val; identity holds a key of the images.
"""
