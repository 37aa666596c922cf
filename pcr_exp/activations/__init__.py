"""Tensors saved for backward: convolution inputs, compressed or recomputed."""
