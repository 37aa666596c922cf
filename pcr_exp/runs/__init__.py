"""One training run on disk: its directory, manifest, rows, tracker."""
