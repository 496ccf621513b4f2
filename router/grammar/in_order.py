"""Terms of Lark in an order, some of them or all, with something between those that come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OrderedTerm:
    """One of them. `term` stands alone, or in brackets."""

    term: str
    is_required: bool


def in_order(parts: Sequence[OrderedTerm], between: str, name: str) -> tuple[str, list[str]]:
    """The expression, "" for no parts, and rules that it needs, whose names begin with `name`.

    Beside one that is required every other brings its own `between`. Where none is, the first that
    comes has none before it: there each part and what may follow it are rules.
    """
    anchor = next((i for i, part in enumerate(parts) if part.is_required), None)
    if anchor is None:
        return _without_anchor(parts, between, name)
    before = [_times(f"{part.term} {between}", part) for part in parts[:anchor]]
    after = [_times(f"{between} {part.term}", part) for part in parts[anchor + 1 :]]
    return " ".join([*before, parts[anchor].term, *after]), []


def _times(term: str, part: OrderedTerm) -> str:
    return term if part.is_required else f"({term})?"


def _without_anchor(parts: Sequence[OrderedTerm], between: str, name: str) -> tuple[str, list[str]]:
    if not parts:
        return "", []
    rules = [f"{name}_p{i}: {part.term}" for i, part in enumerate(parts)]
    last = len(parts) - 1
    follow = [f" {name}_r{i}" if i < last else "" for i in range(len(parts))]
    rules += [f"{name}_r{i}: ({between} {name}_p{i + 1})?{follow[i + 1]}" for i in range(last)]
    first = " | ".join(f"{name}_p{i}{follow[i]}" for i in range(len(parts)))
    return f"({first})?", rules
