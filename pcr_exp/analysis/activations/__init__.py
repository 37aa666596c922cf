"""What compressing activations saves, and which errors it makes.

`experiments.activation_study` calls `page.write_study` with what it measured on one batch.
"""
