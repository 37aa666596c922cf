"""Helpers for every package. They import none of the others.

Atomic files, locks, processes, the machine, keys and random streams, provenance, packed bits, columns of
rows, and units: MiB is 2^20 bytes, MB is 10^6, and names state which.
"""

MIB = 2**20
"""Bytes in a MiB."""
