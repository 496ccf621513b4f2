"""A grammar of ours in vLLM's words, where it has the same ones.

A schema, any object and a list of texts mean the same there. Regular expressions and grammars are
read by whatever library a server has, each in a dialect of its own: those are refused by name.
"""

from __future__ import annotations

import re
from typing import Any

from cluster.errors import InvalidRequest
from cluster.grammar import Grammar, GrammarKind
from router.grammar.json_schema import WHITESPACE, schema_in
from router.grammar.lark import choices_in

SINCE = (0, 11)
"""Versions of vLLM before it leave the field out, with a line in their log."""
_VERSION = re.compile(r"(\d+)\.(\d+)")


def check_version(version: str) -> None:
    """Of a server that is to follow a grammar, in its own words. Raises InvalidRequest."""
    found = _VERSION.search(version)
    if found is None or (int(found[1]), int(found[2])) < SINCE:
        raise InvalidRequest(
            f"this server is {version or 'of an unknown version'}; vLLM follows what an answer is "
            f"to be since {SINCE[0]}.{SINCE[1]}: leave response_format and structured_outputs out"
        )


def structured_outputs(grammar: Grammar) -> dict[str, Any]:
    """Raises InvalidRequest for what vLLM has no exact word for."""
    if grammar.kind is GrammarKind.CHOICE:
        return {"choice": choices_in(grammar)}
    if grammar.kind in (GrammarKind.JSON_SCHEMA, GrammarKind.JSON_OBJECT):
        schema, whitespace = schema_in(grammar)
        if grammar.kind is GrammarKind.JSON_OBJECT:
            return {"json_object": True, **_whitespace(whitespace)}
        return {"json": schema, **_whitespace(whitespace)}
    if grammar.kind is GrammarKind.TOOLS:
        raise InvalidRequest(
            "vLLM workers do not follow grammars of tools; leave out tool_choice and strict",
            param=grammar.kind,
        )
    raise InvalidRequest(
        f"vLLM workers do not follow a {grammar.kind} as this server's own do; ask by json, "
        "json_object or choice, and for a model that thinks with reasoning_format: none",
        param=grammar.kind,
    )


def _whitespace(words: dict[str, Any]) -> dict[str, Any]:
    if words.get("whitespace_flexible") is False:
        return {"disable_any_whitespace": True}
    pattern = words["whitespace_pattern"]
    return {} if pattern == WHITESPACE else {"whitespace_pattern": pattern}
