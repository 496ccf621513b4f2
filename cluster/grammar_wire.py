"""A grammar on the wire and back."""

from __future__ import annotations

from cluster.errors import InvalidRequest
from cluster.grammar import Grammar, GrammarKind
from cluster.identity import OWNER_BYTES
from protos import generation_pb2


def grammar_to_wire(grammar: Grammar) -> generation_pb2.Grammar:
    """The names are the same on both sides."""
    return generation_pb2.Grammar(text=grammar.text, kind=grammar.kind.value, owner=grammar.owner)


def grammar_from_wire(message: generation_pb2.Grammar) -> Grammar:
    """The inverse of `grammar_to_wire`. Raises InvalidRequest for a kind that is none."""
    try:
        kind = GrammarKind(message.kind)
        return Grammar(message.text, kind, owner=message.owner[:OWNER_BYTES])
    except ValueError:
        why = f"{message.kind[:40]!r} is no kind of grammar; known: {', '.join(GrammarKind)}"
        raise InvalidRequest(why, param="grammar.kind") from None
