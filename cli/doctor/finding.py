"""What a check found out."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass


class Verdict(enum.StrEnum):
    """FAIL: a fleet will not run here. WARN: it will, worse than it could."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `hint` says what helps, and is empty when all is well."""

    verdict: Verdict
    text: str
    hint: str = ""
    took_ms: float | None = None
    """Where it was found before its line was asked for."""


@dataclass(frozen=True, slots=True)
class Check:
    """A named question. `look` takes no arguments and may raise: that is a FAIL."""

    name: str
    look: Callable[[], Finding]


def fine(text: str) -> Finding:
    """All is well."""
    return Finding(Verdict.OK, text)


def poor(text: str, hint: str) -> Finding:
    """It works, worse than it could."""
    return Finding(Verdict.WARN, text, hint)


def broken(text: str, hint: str) -> Finding:
    """It does not work."""
    return Finding(Verdict.FAIL, text, hint)
