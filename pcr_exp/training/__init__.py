"""What learns: models, the loop, the clocks, checkpoints."""
