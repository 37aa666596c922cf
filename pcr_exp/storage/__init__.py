"""Where bytes lie and how fast they come: range reads (`protocol`), local and remote, throttled, counted.

`open_storage` makes one from an address and `StorageConfig`; a throttle is a wrapper, and every process of a
host shares its bucket.
"""

from __future__ import annotations
