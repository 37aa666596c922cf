"""Deliberate damage to bytes, to JPEG files by segment, and to JSON by structure."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from pcr_exp.images.jpeg import segments


def mutate_bytes(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    """Damage data one to four times: flip, overwrite, cut, insert, remove, repeat, splice with `other`."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        data = _mutate_once(data, rng, other)
    return data


def _mutate_once(data: bytes, rng: Random, other: bytes) -> bytes:
    at, to = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    short = min(len(data), at + rng.choice([1, 2, 4, 16]))
    noise = rng.randbytes(rng.choice([1, 2, 4, 64]))
    flipped = bytes(byte ^ 1 << rng.randrange(8) for byte in data[at : at + 1])
    return rng.choice(
        [
            data[:at] + flipped + data[at + 1 :],
            data[:at] + noise + data[at + len(noise) :],
            data[:at] + rng.choice([b"\x00", b"\xff"]) * (short - at) + data[short:],
            data[:at],
            data[:at] + noise + data[at:],
            data[:at] + data[short:],
            data[:to] + data[at:],
            data[:at] + other[rng.randrange(len(other) + 1) :],
        ]
    )


def mutate_jpeg(jpeg: bytes, rng: Random, other: bytes) -> bytes:
    """Change a segment's contents or length; repeat, remove or swap segments, or insert one of `other`."""
    parts = [jpeg[s.start : s.end] for s in segments(jpeg)]
    others = [other[s.start : s.end] for s in segments(other)]
    for _ in range(rng.choice([1, 1, 2, 3])):
        i = rng.randrange(len(parts))
        part = parts[i]
        kind = rng.randrange(9)
        if kind <= 2 and len(part) > 4:  # among the first bytes, which hold the structure
            at = rng.randrange(2, min(len(part), 40))
            parts[i] = part[:at] + bytes([rng.choice([0, 1, 255, rng.randrange(256)])]) + part[at + 1 :]
        elif kind == 3 and len(part) > 4:
            parts[i] = part[:2] + rng.randrange(65536).to_bytes(2, "big") + part[4:]
        elif kind == 4:
            parts[i:i] = [part] * rng.choice([1, 1, 3, 100])
        elif kind == 5:
            del parts[i]
        elif kind == 6:
            j = rng.randrange(len(parts))
            parts[i], parts[j] = parts[j], parts[i]
        elif kind == 7:
            parts.insert(i, rng.choice(others))
        else:
            frame = next((n for n, p in enumerate(parts) if p[1:2] in (b"\xc0", b"\xc1", b"\xc2")), None)
            if frame is not None and len(parts[frame]) >= 9:
                size = rng.choice(
                    [rng.randbytes(4), b"\xff\xff\xff\xff", b"\x00\x01\xff\xff", b"\x02\x00\x02\x00"]
                )
                parts[frame] = parts[frame][:5] + size + parts[frame][9:]
        if not parts:
            break
    return b"\xff\xd8" + b"".join(parts)


_VALUES = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        -32,
        2**31,
        2**32,
        2**53,
        2**63,
        2**64,
        10**30,
        0.5,
        1e308,
        "",
        "x",
        "../../etc/passwd",
    ),
    *(
        "\x00",
        "\ud800",
        "a" * 5000,
        [],
        {},
        [[]],
        [1, 2],
        {"a": {"a": {"a": 1}}},
        [None] * 50,
        "record-000000.pcr",
        "pcr",
    ),
)


def mutate_json(document: Any, rng: Random) -> Any:
    """Return the document with one to three values replaced, removed, repeated, added or nested."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        holder, key = rng.choice(list(_places(document)) or [(None, None)])
        if holder is None:
            return copy.deepcopy(rng.choice(_VALUES))
        kind = rng.randrange(7)
        if kind <= 2:
            holder[key] = copy.deepcopy(rng.choice(_VALUES))
        elif kind == 3:
            del holder[key]
        elif kind == 4 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif kind == 4:
            holder[rng.choice(["colour", "minor", "", "../x"])] = copy.deepcopy(rng.choice(_VALUES))
        elif kind == 5 and type(holder[key]) is int:
            holder[key] += rng.choice([-1, 1, 7, -100, 2**20, -(2**40), 2**40])
        else:
            for _ in range(rng.choice([1, 20])):
                holder[key] = [holder[key]]
    return document


def mutate_text(text: bytes, rng: Random) -> bytes:
    """Damage JSON as text, in ways that a JSON structure cannot express."""
    at = rng.randrange(len(text) + 1)
    extra = rng.choice(
        [
            b"NaN",
            b"-Infinity",
            b"1e999",
            b"[" * 5000,
            b'{"a":' * 5000,
            b"9" * 5000,
            b"\xff\xfe",
            b"\xc3",
            b'"a":1,"a":2,',
        ]
    )
    return rng.choice([text[:at] + extra + text[at:], mutate_bytes(text, rng, text)])


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of every value in the document."""
    places, waiting = [], [document]
    while waiting:
        holder = waiting.pop()
        keys = (
            list(holder)
            if isinstance(holder, dict)
            else range(len(holder))
            if isinstance(holder, list)
            else []
        )
        for key in keys:
            places.append((holder, key))
            waiting.append(holder[key])
    return places
