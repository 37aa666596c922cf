"""Data echoing (Choi et al. 2019, arXiv 1907.05550): what was read once is used several times."""
