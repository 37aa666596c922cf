"""Helpers for every package; they know none of them.

Atomic files, the lock, processes, the machine, keys and random streams, provenance, packed bits, what a
column is, and units: MiB are 2^20 bytes, MB are 10^6, and a name says which.
"""

MIB = 2**20
"""Bytes in a MiB."""
