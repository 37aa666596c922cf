"""Photographs from public repositories in the layouts of their datasets, and checks of all sets."""
