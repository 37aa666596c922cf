"""Data echoing (Choi et al. 2019, arXiv 1907.05550): what was read once is used several times.

A variant is a stage with its settings (`variants`). In front of decoding (`before`) it changes the order and
keeps reads; behind it (`after`) it repeats batches, or their samples. `stage` has what all variants share: it
draws what is repeated, and measures which echo is free.
"""
