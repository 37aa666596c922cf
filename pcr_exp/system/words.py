"""Counts for use in sentences."""

from __future__ import annotations


def counted(num: int, noun: str, verb: str = "") -> str:
    """Return `1 image`, `1,234 images`; with `verb="are"`, `1 image is`, `1,234 images are`.

    Args:
        num: The count.
        noun: In the singular; the plural must end in s.
        verb: In the plural: `are` or `have`.
    """
    words = f"{num:,} {noun if num == 1 else f'{noun}s'}"
    if not verb:
        return words
    return f"{words} {_OF_ONE[verb] if num == 1 else verb}"


_OF_ONE = {"are": "is", "have": "has"}
