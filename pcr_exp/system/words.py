"""Counts in sentences."""

from __future__ import annotations


def counted(num: int, noun: str, verb: str = "") -> str:
    """`1 image`, `1,234 images`; with `verb="are"` also `1 image is`, `1,234 images are`.

    Args:
        num: How many.
        noun: Of one; its plural ends in s.
        verb: In the plural: `are` or `have`.
    """
    words = f"{num:,} {noun if num == 1 else f'{noun}s'}"
    if not verb:
        return words
    return f"{words} {_OF_ONE[verb] if num == 1 else verb}"


_OF_ONE = {"are": "is", "have": "has"}
