"""Grammars in a text worker of their own: refused ones cost nobody else anything."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest

from cluster.errors import (
    GrammarFailed,
    GrammarsUnsupported,
    InvalidRequest,
    NotReady,
    UnsupportedModel,
)
from cluster.grammar import Grammar, GrammarKind
from cluster.models.card import ModelCard
from router.front.generation_request import ChatPrompt
from router.front.model_loading import load_text_side
from router.grammar.json_schema import schema_grammar
from router.text_worker import grammar_trial, trials
from router.text_worker.messages import Setup, TryGrammar, pack_task
from router.text_worker.text_process import TextProcess
from router.text_worker.trials import GrammarTrials
from tests.router.grammar.hostile import past_the_checks
from tests.router.text_worker.test_text_workers import (
    CONTEXT_TOKENS,
    HELLO,
    PLENTY,
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


async def test_what_trials_need_is_loaded_before_a_limit_of_time_or_memory_holds(
    card: ModelCard,
) -> None:
    process = await TextProcess.start(Setup(card, "tiny", PLENTY))
    try:
        limits = psutil.Process(process.pid).rlimit
        assert limits(psutil.RLIMIT_AS)[0] == psutil.RLIM_INFINITY
        await process.begin(0, with_grammars=True)  # returns once they are loaded
        assert limits(psutil.RLIMIT_CPU)[0] == psutil.RLIM_INFINITY
        assert limits(psutil.RLIMIT_AS)[0] != psutil.RLIM_INFINITY
        await process.ask(pack_task(TryGrammar(SCHEMA), 0), b"")
        assert limits(psutil.RLIMIT_CPU)[0] != psutil.RLIM_INFINITY
    finally:
        await process.end()


def test_a_model_that_no_grammar_can_be_followed_for_is_loaded_once(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_loads = 0

    def load(*args: object) -> None:
        nonlocal num_loads
        num_loads += 1
        raise UnsupportedModel("no end of sequence")

    monkeypatch.setattr(trials, "load_grammar_tokenizer", load)
    grammars = GrammarTrials(card, load_text_side(card, "tiny").tokenizer)
    with pytest.raises(GrammarsUnsupported, match="not loaded"):
        grammars.run(SCHEMA)  # a task loads nothing
    assert num_loads == 0
    grammars.load()
    for _ in range(3):
        with pytest.raises(GrammarsUnsupported, match="no end of sequence"):
            grammars.run(SCHEMA)
    assert num_loads == 1


async def test_a_worker_refuses_every_grammar_of_a_model_without_an_end(card: ModelCard) -> None:
    async with workers_of(replace(card, eos_token_ids=())) as workers:
        for _ in range(2):
            error = await error_of(workers.try_grammar(SCHEMA))
            assert type(error) is GrammarsUnsupported and "no end of sequence" in error.message


def test_a_trial_that_cannot_be_forked_leaves_no_pipe_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(grammar_trial.os, "fork", fails)
    before = psutil.Process().num_fds()
    for _ in range(3):
        with pytest.raises(NotReady, match="could not be tried out"):
            grammar_trial.try_apart(None, SCHEMA)  # type: ignore[arg-type]
    assert psutil.Process().num_fds() == before
