"""Typed configuration: one module per config group of `configs/`."""
