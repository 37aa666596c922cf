"""A training run on disk: its id, directory, manifest and rows, and the session that writes them.

`experiments.train` calls `train_run.run_training`. `analysis` reads the results through `manifest` and
`rows`, or a packed set of runs through `packed`.
"""
