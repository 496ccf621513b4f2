"""A grammar's text is Lark, or parts in JSON; either is read and written at one place."""

from __future__ import annotations

import pytest

from cluster.grammar import Grammar, GrammarKind, GrammarPart, has_parts, parts_of, whole_of

LARK: GrammarPart = {"lark_grammar": 'start: "é{" | @other'}
SCHEMA: GrammarPart = {"json_schema": {"type": "object", "x-guidance": {}}, "name": "other"}


@pytest.mark.parametrize("parts", [[LARK], [SCHEMA], [LARK, SCHEMA], [{**LARK, "name": "a"}]])
def test_a_grammars_parts_are_those_that_it_was_written_of(parts: list[GrammarPart]) -> None:
    assert parts_of(Grammar(whole_of(parts), GrammarKind.LARK)) == parts


def test_lark_alone_is_its_own_text_and_all_else_has_parts() -> None:
    assert whole_of([LARK]) == LARK["lark_grammar"] and not has_parts(whole_of([LARK]))
    assert has_parts(whole_of([SCHEMA])) and has_parts(whole_of([LARK, SCHEMA]))
    assert has_parts(' \n{"grammars": []}')
