"""Where bytes lie and how fast they come: range reads (`RangeReader`), local and remote, throttled, counted.

`open_storage` makes one from an address and `StorageConfig`; a throttle is a wrapper, and every process of a
host shares its bucket.
"""
