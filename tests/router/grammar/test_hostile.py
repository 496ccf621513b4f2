"""Hostile grammars: most are refused before any work, others in a process that may die of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from cluster.errors import InvalidRequest, NotReady
from cluster.grammar import Grammar
from router.grammar.json_schema import schema_grammar
from router.text_worker import grammar_trial
from router.text_worker.grammar_trial import CPU_S, try_apart
from tests.core_speed import slowness
from tests.router.grammar.hostile import makers, past_the_checks
from tests.router.grammar.matching import tokenizer

HERE_S = 0.02
"""Of a core, on the event loop."""
ALL_S = 0.3
"""Of a core, in this process and in the one that is forked."""
MAKERS, PAST = makers(), past_the_checks()


@pytest.fixture(scope="module", autouse=True)
def loaded() -> Iterator[None]:
    tokenizer()
    yield


def cores_s() -> float:
    """Seconds of cores, of ended children too: a busy machine takes longer, and this not more."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def refused_apart(grammar: Grammar) -> float:
    """The seconds of cores that it took. However busy the machine is: a trial that it gives no time
    is another's."""
    while True:
        began_s = cores_s()
        with pytest.raises((InvalidRequest, NotReady)) as caught:
            try_apart(tokenizer(), grammar)
        if not isinstance(caught.value, NotReady):
            return cores_s() - began_s


def tried_apart(grammar: Grammar) -> None:
    """It passes, once the machine gives its trial time."""
    while True:
        with suppress(NotReady):
            try_apart(tokenizer(), grammar)
            return


def test_there_are_thirty() -> None:
    assert len(MAKERS) >= 30


@pytest.mark.parametrize("name", MAKERS)
def test_a_hostile_grammar_is_refused_soon_and_holds_nobody(name: str, no_collector: None) -> None:
    began_s, refused = time.thread_time(), None
    grammar: Grammar | None = None
    try:
        grammar = MAKERS[name]()
    except InvalidRequest as error:
        refused = error
    here_s = time.thread_time() - began_s
    assert here_s < HERE_S * slowness()
    if grammar is None:
        assert refused is not None and len(refused.message) < 600
        return
    assert here_s + refused_apart(grammar) < ALL_S * slowness()


@pytest.mark.parametrize("name", PAST)
def test_what_would_pass_the_checks_dies_in_its_own_process(name: str) -> None:
    assert refused_apart(PAST[name]) < CPU_S + 0.2  # cold caches are part of it
    try_apart(tokenizer(), schema_grammar({"type": "object"}, param="schema"))


def test_what_would_need_more_than_half_the_stack_of_an_engine_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Engines compile in threads, whose stack is less than that of the process that tries."""
    links = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}]} for i in range(255)}
    deep = {"$defs": links | {"a255": {"type": "null"}}, "$ref": "#/$defs/a0"}
    grammar = schema_grammar(deep, param="schema")
    refused_apart(grammar)
    monkeypatch.setattr(grammar_trial, "STACK_BYTES", 8 << 20)
    tried_apart(grammar)


def test_the_largest_schema_that_may_come_is_looked_through_at_once(no_collector: None) -> None:
    properties = {
        f"p{i}": {"type": "object", "properties": {"a": {"$ref": "#"}}} for i in range(500)
    }
    began_s = cores_s()
    schema_grammar({"type": "object", "properties": properties}, param="schema")
    assert cores_s() - began_s < HERE_S * slowness()
