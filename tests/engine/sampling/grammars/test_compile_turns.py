"""In whose turn grammars are compiled: owners, and cancelled ones."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future

from llguidance import LLMatcher, LLTokenizer

from cluster.grammar import Grammar, GrammarKind
from engine.sampling.grammars.compile_turns import CompileTurns
from engine.sampling.grammars.compiler import GrammarCompiler
from tests.engine.sampling.grammars.grammar_engine import grammar_tokenizer

LIMIT_S = 60.0


def grammar(word: str, owner: str) -> Grammar:
    return Grammar(f'start: "{word}"', GrammarKind.LARK).owned_by(owner)


class HeldCompiler:
    """A compiler whose tokenizer comes when it is let go, so that all that is asked for waits."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.compiler = GrammarCompiler(self.load)
        self.order: list[str] = []

    def load(self) -> LLTokenizer:
        assert self.let_go.wait(LIMIT_S)
        return grammar_tokenizer()

    def ask(self, word: str, owner: str) -> Future[LLMatcher]:
        first = self.compiler.compile(grammar(word, owner)).first
        first.add_done_callback(lambda _: self.order.append(word))
        return first


def test_who_asks_for_many_keeps_no_other_owner_waiting() -> None:
    held = HeldCompiler()
    asked = [held.ask(f"many{number}", "a") for number in range(20)]
    asked += [held.ask(word, owner) for word, owner in (("b1", "b"), ("c1", "c"), ("b2", "b"))]
    held.let_go.set()
    for first in asked:
        first.result(LIMIT_S)
    assert held.order[:6] == ["many0", "b1", "c1", "many1", "b2", "many2"]
    held.compiler.close()


def test_what_one_owner_has_asked_for_makes_no_other_s_sooner() -> None:
    """How soon an answer begins says nothing of what others ask for."""
    held = HeldCompiler()
    asked = [held.ask("common", owner) for owner in ("a", "b", "a")]
    assert asked[0] is asked[2] and asked[0] is not asked[1]
    held.let_go.set()
    for first in asked:
        first.result(LIMIT_S)
    assert held.compiler.compile(grammar("common", "b")).first is asked[1]
    held.ask("common", "c").result(LIMIT_S)
    assert held.compiler.meter.num_compiled == 3
    held.compiler.close()


def test_what_nobody_waits_for_any_more_takes_no_turn() -> None:
    held = HeldCompiler()
    left = held.compiler.compile(grammar("left", "a"))
    after = held.ask("after", "a")
    left.leave()
    held.let_go.set()
    after.result(LIMIT_S)
    assert left.is_lost and held.compiler.meter.num_compiled == 1
    again = held.compiler.compile(grammar("left", "a"))
    assert not again.start().is_error()
    held.compiler.close()


def test_nobody_waits_for_a_compiler_that_is_closed() -> None:
    held = HeldCompiler()
    waiting = held.ask("never", "a")
    held.compiler.close()
    assert waiting.cancelled()
    held.let_go.set()


def test_a_thousand_askers_get_each_of_theirs_once_and_wait_for_one_of_each_other() -> None:
    chance, turns = random.Random(5), CompileTurns()
    owners = "abc"
    waiting: dict[str, list[str]] = {owner: [] for owner in owners}
    since = dict.fromkeys(owners, 0)
    for number in range(1000):
        owner = chance.choices(owners, weights=(8, 3, 1))[0]
        turns.put(grammar(f"w{number}", owner), Future())
        waiting[owner].append(f"w{number}")
        if chance.random() < 0.6:
            taken = turns.take()
            assert taken is not None
            text = taken[0].text.split('"')[1]
            (of,) = [owner for owner in owners if waiting[owner][:1] == [text]]
            waiting[of].pop(0)
            since = {owner: since[owner] + 1 if waiting[owner] else 0 for owner in owners} | {of: 0}
            assert all(count <= len(owners) for count in since.values())
    while (taken := turns.take()) is not None:
        text = taken[0].text.split('"')[1]
        (of,) = [owner for owner in owners if waiting[owner][:1] == [text]]
        waiting[of].pop(0)
    assert not any(waiting.values())
