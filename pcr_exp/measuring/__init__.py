"""Measurements on one's own data without training: quality, tolerance, evaluation, throughput."""
