"""What an answer must be: a grammar, as text that llguidance compiles.

The router makes it of a client's wish, checks it and tries it out; engines compile it again.
Whether a token may come is a function of the grammar and of the tokens before it, so nothing but
the text travels.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from cluster.identity import owner_of

DIGEST_BYTES = 16


class GrammarKind(enum.StrEnum):
    """What the client asked with: for messages and metrics, it changes no mask."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    CHOICE = "choice"
    LARK = "grammar"
    STRUCTURAL_TAG = "structural_tag"
    TOOLS = "tools"


GrammarPart = dict[str, Any]
"""`{"lark_grammar": text}` or `{"json_schema": schema}`; with a `name`, if another one refers to it
as `@name`."""


class Grammar(msgspec.Struct, frozen=True):
    """Equal texts are equal grammars, and what is made of them is each owner's own. Not checked
    here: what enters a router is checked there, what enters a worker is bounded by
    `worker/admission.py`."""

    text: str
    """Lark in llguidance's dialect, or parts in its JSON: see `parts_of`."""
    kind: GrammarKind
    param: str | None = None
    """The client's field, for refusals; workers are not told."""

    owner: bytes = b""
    """Who alone has what is made of it, in a router and in an engine, and in whose share of a
    router's verdicts and of an engine's compiled grammars it counts: a name that says nothing of
    the tenant. The router's word; the client's field is not asked."""

    def owned_by(self, tenant: str) -> Grammar:
        """The same, that tenant's alone."""
        return msgspec.structs.replace(self, owner=owner_of(tenant))

    @property
    def digest(self) -> bytes:
        """DIGEST_BYTES: the name of what is made of the text for its owner. Tenants share nothing
        of that: how soon it is there would tell one of them what another has asked for."""
        return blake2b(self.text.encode(), key=self.owner, digest_size=DIGEST_BYTES).digest()


def has_parts(text: str) -> bool:
    """Whether llguidance reads it as JSON with parts, and not as Lark."""
    return text.lstrip().startswith("{")


def parts_of(grammar: Grammar) -> list[GrammarPart]:
    """The answer is the first; others are what it refers to."""
    if not has_parts(grammar.text):
        return [{"lark_grammar": grammar.text}]
    parts: list[GrammarPart] = msgspec.json.decode(grammar.text)["grammars"]
    return parts


def whole_of(parts: Sequence[GrammarPart]) -> str:
    """The inverse: a grammar's text. Raises RecursionError for a schema nested too deeply."""
    if len(parts) == 1 and parts[0].keys() == {"lark_grammar"}:
        lark: str = parts[0]["lark_grammar"]
        return lark
    return msgspec.json.encode({"grammars": parts}).decode()
