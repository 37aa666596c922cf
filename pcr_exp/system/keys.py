"""Short names for sets of settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def key_of(fields: Mapping[str, Any]) -> str:
    """Return eight hex digits that identify a set of settings: SHA-256 of their canonical JSON."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]
