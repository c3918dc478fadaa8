"""Keyed hashes of MODEL 2, in plain integers."""

MASK64 = 2**64 - 1
MASK32 = 2**32 - 1
STREAM_TIE = 1
STREAM_ECN = 2
STREAM_LOSS = 5


def mix64(value: int) -> int:
    value ^= value >> 30
    value = value * 0xBF58476D1CE4E5B9 & MASK64
    value ^= value >> 27
    value = value * 0x94D049BB133111EB & MASK64
    return value ^ value >> 31


def hash64(*values: int) -> int:
    total = 0
    for value in values:
        total = mix64(((total ^ value & MASK64) + 0x9E3779B97F4A7C15) & MASK64)
    return total


def mix32(value: int) -> int:
    value ^= value >> 16
    value = value * 0x85EBCA6B & MASK32
    value ^= value >> 13
    value = value * 0xC2B2AE35 & MASK32
    return value ^ value >> 16
