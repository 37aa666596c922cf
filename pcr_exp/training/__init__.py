"""Training: models, the loop, the clocks, checkpoints."""
