"""Grammars in a text worker of their own: refused ones cost nobody else anything."""

from __future__ import annotations

from cluster.errors import GrammarFailed, InvalidRequest, NotReady
from cluster.grammar import Grammar, GrammarKind
from cluster.models.card import ModelCard
from router.front.generation_request import ChatPrompt
from router.grammar.json_schema import schema_grammar
from tests.router.grammar.hostile import past_the_checks
from tests.router.text_worker.test_text_workers import (
    CONTEXT_TOKENS,
    HELLO,
    error_of,
    pids,
    workers_of,
)

SCHEMA = schema_grammar({"type": "object", "properties": {"a": {}}}, param="schema")


async def test_a_grammar_that_can_be_followed_is_let_through(card: ModelCard) -> None:
    async with workers_of(card) as workers:
        await workers.try_grammar(SCHEMA)


async def test_a_refusal_has_the_librarys_words(card: ModelCard) -> None:
    async with workers_of(card) as workers:
        error = await error_of(workers.try_grammar(Grammar("start: x", GrammarKind.LARK)))
    assert type(error) is InvalidRequest and "unknown name" in error.message


async def test_what_crashes_or_hangs_the_library_ends_no_worker(card: ModelCard) -> None:
    async with workers_of(card) as workers:
        await workers.try_grammar(SCHEMA)
        before = pids()
        for grammar in past_the_checks().values():
            error = await error_of(workers.try_grammar(grammar))
            # where a busy machine gave the trial no time, it is told so
            assert isinstance(error, GrammarFailed | InvalidRequest | NotReady)
            assert await workers.encode(HELLO, CONTEXT_TOKENS)
        await workers.try_grammar(SCHEMA)
        assert pids() == before


async def test_a_router_that_sees_no_grammar_has_no_process_for_them(card: ModelCard) -> None:
    async with workers_of(card) as workers:
        assert isinstance(HELLO, ChatPrompt)
        await workers.encode(HELLO, CONTEXT_TOKENS)
        assert len(pids()) <= 3
