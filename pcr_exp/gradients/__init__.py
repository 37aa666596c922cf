"""Encode gradients as messages between training processes, and decode them."""
