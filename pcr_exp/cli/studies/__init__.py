"""Commands that measure: imported when a job begins, so that `--help` need not wait for it."""
