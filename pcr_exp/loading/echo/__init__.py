"""Data echoing (Choi et al. 2019, arXiv 1907.05550): data that was read once is used several times.

A variant is a stage with its settings (`variants`). Before decoding (`before`), it changes the order and
holds reads in memory; after it (`after`), it repeats batches or their samples. `stage` contains what all
variants share: it draws the repeats, and measures how much echoing is free.
"""
