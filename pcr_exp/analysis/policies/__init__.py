"""What a scan policy chose, when and why, and what it saved.

`report` draws the traces of all runs with a policy, `scans.one_run` that of one run.
"""
