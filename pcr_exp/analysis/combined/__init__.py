"""Scans, echoing, gradients and activations in one run."""
