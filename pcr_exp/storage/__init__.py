"""Storages: range reads (`protocol`) of local and remote files, with throttling and counting.

`open_storage` opens one from an address and a `StorageConfig`. A throttle is a wrapper, and all processes of
a host share its bucket.
"""

from __future__ import annotations
