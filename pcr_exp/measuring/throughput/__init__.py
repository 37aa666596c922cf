"""Throughput of our scan levels in images/s: jobs, their measurement, and all levels interleaved."""
