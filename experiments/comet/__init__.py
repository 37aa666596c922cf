"""COMET: memory saved by compressing activations, and the errors that this causes.

`experiments.activation_study` calls `study.activation_study`; `page` writes its tables and figures.
"""
