"""The folders of results/: what made them, and under what they were measured."""
