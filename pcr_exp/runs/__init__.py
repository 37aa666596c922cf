"""One training run on disk: its name, its directory, its manifest and rows, and the session that makes them.

`experiments.train` calls `train_run.run_training`. `analysis` reads what it left, by `manifest` and
`rows`, or a packed set of runs, by `packed`.
"""
