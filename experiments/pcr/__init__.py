"""Measurements of the PCR paper: time to a target, accuracy by quality, scan scripts, throughput model."""
