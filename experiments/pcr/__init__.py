"""What the PCR paper measured: time to a target, accuracy by quality, scan scripts, the throughput model."""
