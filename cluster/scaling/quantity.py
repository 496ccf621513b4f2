"""Amounts of resources as Kubernetes writes them: 500m, 2Gi, 1e3. Pure."""

from __future__ import annotations

import re
from fractions import Fraction

_BINARY = {f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL = {letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)}
_PARTS = {letter: Fraction(1, 1000**power) for power, letter in enumerate("mun", 1)}
_FACTORS = {"": Fraction(1)} | _BINARY | _DECIMAL | _PARTS
_FORM = re.compile(r"([+-]?[0-9]{0,40}(?:\.[0-9]{0,40})?)([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})")
_GIB = 1024**3


def quantity(written: object) -> Fraction:
    """Exactly. Raises ValueError for what is none."""
    found = _FORM.fullmatch(str(written).strip())
    if found is None or not any(letter.isdecimal() for letter in found[1]):
        raise ValueError(f"{written!r} is no amount of a resource")
    number, suffix = Fraction(found[1]), found[2]
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return number * Fraction(10) ** int(suffix[1:])
    if suffix not in _FACTORS:
        raise ValueError(f"{written!r} is no amount of a resource")
    return number * _FACTORS[suffix]


def in_words(resource: str, amount: Fraction) -> str:
    """For people: bytes in GiB, all else as a number."""
    is_bytes = resource.rpartition(".")[2] in ("memory", "ephemeral-storage", "storage")
    if is_bytes and amount:
        return f"{_short(amount / _GIB)} GiB"
    return _short(amount)


def _short(amount: Fraction) -> str:
    return f"{float(amount):.2f}".rstrip("0").rstrip(".")
