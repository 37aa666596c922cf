"""What every room may lean on, and that knows none of them.

Atomic files, the lock, the page cache, provenance, signals, random streams, packed bits, and what a column
is.
"""
