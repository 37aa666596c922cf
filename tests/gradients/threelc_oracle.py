"""3LC value by value in exact arithmetic, written from the paper's description alone."""

import struct
from fractions import Fraction


def float32(value: Fraction | float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def encode(values: list[float], sparsity: float) -> tuple[float, list[int], list[int], list[float]]:
    """Return M, the quartic bytes, the zero-run bytes, and the residuals of one tensor."""
    largest = max((abs(value) for value in values), default=0.0)
    scale = float32(float32(sparsity) * largest)
    # Fraction rounds halves to even, as the paper's frameworks do.
    ternary = [round(Fraction(value) / Fraction(scale)) if scale else 0 for value in values]
    residuals = [
        float(Fraction(value) - Fraction(scale) * digit) for value, digit in zip(values, ternary, strict=True)
    ]
    quartic = quartic_bytes(ternary)
    return scale, quartic, zero_run_bytes(quartic), residuals


def quartic_bytes(ternary: list[int]) -> list[int]:
    digits = [value + 1 for value in ternary]
    while len(digits) % 5:
        digits.append(1)
    size = len(digits) // 5
    parts = [digits[i * size : (i + 1) * size] for i in range(5)]
    return [
        81 * parts[0][i] + 27 * parts[1][i] + 9 * parts[2][i] + 3 * parts[3][i] + parts[4][i]
        for i in range(size)
    ]


def zero_run_bytes(quartic: list[int]) -> list[int]:
    out: list[int] = []
    place = 0
    while place < len(quartic):
        run = 0
        while place + run < len(quartic) and quartic[place + run] == 121 and run < 14:
            run += 1
        if run >= 2:
            out.append(243 + run - 2)
            place += run
        else:
            out.append(quartic[place])
            place += 1
    return out


def decode(short: list[int], scale: float, count: int) -> list[float]:
    quartic: list[int] = []
    for byte in short:
        quartic += [121] * (byte - 243 + 2) if byte >= 243 else [byte]
    parts: list[list[int]] = [[], [], [], [], []]
    for byte in quartic:
        rest = byte
        for part, weight in zip(parts, (81, 27, 9, 3, 1), strict=True):
            part.append(rest // weight)
            rest %= weight
    digits = [digit for part in parts for digit in part]
    return [float32((digit - 1) * scale) for digit in digits[:count]]
