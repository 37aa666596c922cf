"""COMET: what compressing activations saves, and which errors it makes.

`experiments.activation_study` calls `study.activation_study`; `page` writes its tables and figures.
"""
