"""Loaders that people use today, one module each, and ours, all behind one small protocol."""
