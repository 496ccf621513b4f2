"""What the schemas of one request may cost whoever looks through them and writes them down."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.grammar.limits import (
    MAX_GRAMMAR_BYTES,
    MAX_SCHEMA_STEPS,
    MAX_SCHEMAS,
    MAX_TEXT_STEPS,
    refuse,
)


@dataclass(slots=True)
class Allowance:
    """So many of one kind, over all schemas."""

    limit: int
    what: str
    num: int = 0
    params: set[str] = field(default_factory=set)
    """That have taken of it."""

    def take(self, num: int, param: str) -> None:
        """Raises InvalidRequest beyond the limit, naming `param`."""
        self.num += num
        self.params.add(param)
        if self.num > self.limit:
            before = ", with those before it in the request" if len(self.params) > 1 else ""
            refuse(f"{param} has {self.num} {self.what}{before}; allowed: {self.limit}", param)


def _schemas() -> Allowance:
    return Allowance(MAX_SCHEMAS, "schemas")


def _followed() -> Allowance:
    return Allowance(MAX_SCHEMAS, "schemas, with what `$ref`s lead to")


def _comparisons() -> Allowance:
    return Allowance(MAX_SCHEMA_STEPS, "or more comparisons of alternatives of oneOf")


def _texts() -> Allowance:
    return Allowance(MAX_TEXT_STEPS, "or more alternatives")


def _written_bytes() -> Allowance:
    return Allowance(MAX_GRAMMAR_BYTES, "bytes of parameters")


@dataclass(slots=True)
class SchemaBudget:
    """Of a form, or of all tools of a request together; of comparisons both have one, as both are
    made on the router's loop."""

    param: str
    """Names all of it."""
    schemas: Allowance = field(default_factory=_schemas)
    followed: Allowance = field(default_factory=_followed)
    """Where a `$ref` is followed by whoever writes: once for each function and target."""
    comparisons: Allowance = field(default_factory=_comparisons)
    """Steps of router/grammar/exclusion.py."""
    texts: Allowance = field(default_factory=_texts)
    """Schemas that are asked which texts they take."""
    written_bytes: Allowance = field(default_factory=_written_bytes)
    """Of parameters that are written one by one, each with the definitions that it may need."""


def comparisons_after(num: int, param: str) -> Allowance:
    """What a request has of them where `param` has taken so many."""
    comparisons = _comparisons()
    if num:
        comparisons.take(num, param)
    return comparisons


def budget_of(param: str, comparisons: Allowance | None) -> SchemaBudget:
    """Of a form. `comparisons`: of its request, where others have taken of them before."""
    if comparisons is None:
        return SchemaBudget(param)
    return SchemaBudget(param, comparisons=comparisons)
