"""Data echoing (Choi et al. 2019, arXiv 1907.05550): what was read once is used several times.

`stage` says where the echo stands: in front of decoding it changes the order (`held` keeps the reads), behind
it the stream of batches (`after`). `repeats` draws what is repeated, `ratio` measures which echo is free.
"""
