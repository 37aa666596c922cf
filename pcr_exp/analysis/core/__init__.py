"""What every room of analysis builds on.

Runs from disk, one tidy frame of them, statistics over seeds, time to a target, cells of tables, and how
figures look.
"""
