"""A compile's lexer has so many states for all its answers: none of them ends for others' sake."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator
from typing import Any

import jsonschema
import llguidance.numpy
import pytest
from llguidance import LLMatcher, LLParserLimits

import cluster.models.text.grammars as limits
from cluster.grammar import Grammar
from engine.contract.commands import GenerateRequest, Submit
from engine.offline.queue import Completion, generate
from engine.sampling.grammars.compiled_grammar import WORN_BYTES, CompiledGrammar
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.kept_grammars import BYTES_PER_TOKEN
from engine.sampling.grammars.masked_row import MaskedRow
from engine.sampling.grammars.masks import MaskMaker
from engine.sampling.grammars.meter import GrammarMeter
from engine.sampling.grammars.own_compiles import OwnCompiles
from router.grammar.json_schema import schema_grammar
from router.grammar.lark import choice_grammar
from tests.engine.sampling.grammars.grammar_engine import (
    card,
    engine,
    grammar_tokenizer,
    request,
    text_of,
    text_tokenizer,
)
from tests.engine.step.engine_scenario import run_until_ended

FEW_STATES = 600
"""What each of these answers has room in alone, and a few of them together have not."""
NUM_TENANTS = 2
LENGTHS = {"title": 20, "summary": 60, "body": 150}
WORDS = choice_grammar(["yes", "no, thank you"], param="c")


def strings(**max_lengths: int) -> dict[str, Any]:
    """An object of strings of at most so many characters."""
    return {
        "type": "object",
        "properties": {name: {"type": "string", "maxLength": n} for name, n in max_lengths.items()},
        "required": list(max_lengths),
        "additionalProperties": False,
    }


@pytest.fixture
def few_states(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of every compile."""
    few = LLParserLimits(max_lexer_states=FEW_STATES, verbose_errors=False)
    monkeypatch.setattr(limits, "LIMITS", few)
    yield


def answers_of(num: int, grammar: Grammar) -> list[GenerateRequest]:
    """For its tenants in turn."""
    return [
        request(
            f"r{i}",
            grammar.owned_by(f"tenant {i % NUM_TENANTS}"),
            prompt=[20 + i, 21, 22],
            seed=i,
            max_tokens=60,
            temperature=1.0,
        )
        for i in range(num)
    ]


def test_a_hundred_answers_of_one_engine_are_whole_though_their_lengths_are_unequal(
    few_states: None,
) -> None:
    schema = strings(**LENGTHS)
    running = engine()
    bodies = answers_of(100, schema_grammar(schema, param="s"))
    done = generate(running, bodies)
    num_whole = 0
    for completion in done:
        assert completion.ended is not None and not completion.ended.error_code
        if completion.finish_reasons[0] == "stop":
            num_whole += 1
            jsonschema.validate(json.loads(text_of(completion.token_ids())), schema)
    assert num_whole >= 50
    assert running._grammars is not None
    num_compiled = running._grammars.meter.num_compiled
    assert num_compiled > NUM_TENANTS, "nothing was spent, and nothing is shown"
    assert tokens(done[90:93]) == tokens([generate(engine(), [body])[0] for body in bodies[90:93]])


def tokens(done: list[Completion]) -> list[list[int]]:
    """Of the first choices."""
    return [completion.token_ids() for completion in done]


def test_an_answer_that_alone_takes_too_many_states_ends_and_says_so(few_states: None) -> None:
    long = schema_grammar(strings(body=2000), param="s")
    open_ended: dict[int, float] = {}
    running = engine()
    running.apply(Submit(request("long", long, max_tokens=200, logit_bias=open_ended)))
    running.apply(Submit(request("well", WORDS, prompt=[31, 32, 33])))
    done = run_until_ended(running, ["long", "well"], 10**6)
    ended = done["long"].ended
    assert ended.error_code == "grammar_failed"
    assert "the answer alone takes more than" in ended.error_message
    assert not done["well"].ended.error_code


def test_who_asks_for_a_spent_grammar_gets_another_compile() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    first = ready(compiler, WORDS)
    first.is_dear = True
    follows = spoiled(Constraint.of(first))
    assert first.is_spent and follows.is_spent and follows.failure is None
    assert Constraint.of(first).is_spent, "who has waited with it does not begin with it"
    again = ready(compiler, WORDS)
    assert again is not first and not again.is_lost and again.is_dear
    assert ready(compiler, WORDS) is again


def test_an_answer_of_a_spent_compile_goes_on_where_it_was() -> None:
    compiler, maker = GrammarCompiler(grammar_tokenizer), mask_maker()
    first, known = ready(compiler, WORDS), text_tokenizer().encode("no, thank")
    follows, beside = Constraint.of(first), Constraint.of(first)
    [expected] = made(maker, MaskedRow(beside, list(known)))
    made(maker, MaskedRow(follows, known[:2]))
    spoiled(follows)
    row = MaskedRow(follows, known[2:])
    while not row.masks or row.is_handed_back:
        made(maker, row)
    assert row.masks[0].words.equal(expected.words) and follows.num_known == len(known)
    assert follows.may_draft and follows.failure is None


def test_what_fails_with_a_compile_that_no_other_has_followed_ends() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    follows = spoiled(Constraint.of(ready(compiler, WORDS)))
    follows.begin_again()
    assert not follows.is_spent
    spoiled(follows)
    assert follows.failure is not None and not follows.is_spent


def test_answers_that_begin_again_share_a_compile_and_have_their_own_when_that_is_spent() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    first = ready(compiler, WORDS)
    some = [spoiled(Constraint.of(first)) for _ in range(20)]
    for follows in some:
        follows.begin_again()
    assert compiler.meter.num_compiled == 2 and not compiler.own.num_bytes
    assert len({follows.grammar for follows in some}) == 1 and some[0].grammar is not first
    spoiled(some[0])
    assert some[0].is_spent and some[0].failure is None
    some[0].begin_again()
    spoiled(some[1]).begin_again()
    assert compiler.meter.num_compiled == 4
    assert spoiled(some[0]).failure is not None


def test_compiles_of_single_answers_have_a_bound_of_memory_past_which_the_largest_ends() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    compiler.own = OwnCompiles(most_bytes=4 << 20)
    first, text = ready(compiler, WORDS), text_tokenizer().encode("no, thank you")
    some = [spoiled(Constraint.of(first)) for _ in range(4)]
    for follows in some:
        follows.begin_again()
    for follows in some:
        spoiled(follows).begin_again()
    assert not any(follows.failure for follows in some)
    small, large = some[:3], some[3]
    assert large._share is not None
    large._share._base_bytes += 4 << 20
    for follows in small:
        follows.catch_up(text[:1])
        assert follows.failure is None
    large.catch_up(text[:1])
    assert large.failure is not None and "of which this one took most" in large.failure
    small[0].catch_up(text[1:2])
    assert small[0].failure is None and 0 < compiler.own.num_bytes < 4 << 20
    some.clear()
    small.clear()
    del follows, large
    assert not compiler.own.num_bytes


def test_an_heir_that_one_answer_alone_follows_is_its_own_until_another_joins() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    first = ready(compiler, WORDS)
    one, other = (spoiled(Constraint.of(first)) for _ in range(2))
    one.begin_again()
    assert compiler.own.num_bytes and one.grammar is not None and one.grammar.is_of_one
    other.begin_again()
    assert not compiler.own.num_bytes and one.grammar is other.grammar
    spoiled(one)
    assert one.is_spent and one.failure is None, "another has followed it as well"


@pytest.mark.parametrize("which", ["the first", "a later one"])
def test_an_heir_is_one_answers_again_once_all_others_have_left_it(which: str) -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    first = ready(compiler, WORDS)
    some = [spoiled(Constraint.of(first)) for _ in range(3)]
    for follows in some:
        follows.begin_again()
    del follows
    assert not compiler.own.num_bytes
    some.pop(0 if which == "a later one" else 1)
    assert not compiler.own.num_bytes, "two follow it"
    some.pop(0 if which == "a later one" else 1)
    assert compiler.own.num_bytes
    [left] = some
    left.begin_again()  # with the same heir, alone
    assert compiler.own.num_bytes
    some.clear()
    del left
    assert not compiler.own.num_bytes


def test_heirs_that_single_answers_have_are_in_the_same_bound() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    compiler.own = OwnCompiles(most_bytes=4 << 20)
    text = text_tokenizer().encode("no, thank you")
    words = [choice_grammar(["no, thank you", f"yes {i}"], param="c") for i in range(3)]
    some = [spoiled(Constraint.of(ready(compiler, each))) for each in words]
    for follows in some:
        follows.begin_again()
    *small, large = some
    assert large._share is not None
    large._share._base_bytes += 4 << 20
    for follows in [*small, large]:
        follows.catch_up(text[:1])
    assert not any(follows.failure for follows in small)
    assert large.failure is not None and "of which this one took most" in large.failure
    assert 0 < compiler.own.num_bytes < 4 << 20


def test_what_the_heir_of_a_kept_compile_takes_is_kept_with_it() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    found = ready(compiler, WORDS)
    before, follows = found.num_bytes, spoiled(Constraint.of(found))
    follows.begin_again()
    follows.catch_up(text_tokenizer().encode("no, thank"))
    assert follows.grammar is not None and follows.grammar is not found
    found.leave()
    assert compiler._kept.num_bytes == before + follows.grammar.num_bytes > 2 * before


def test_an_answer_that_begins_anew_after_a_walk_has_no_masks_for_what_is_told_once_more() -> None:
    compiler, maker = GrammarCompiler(grammar_tokenizer), mask_maker()
    known = text_tokenizer().encode("no, thank")
    walked = Constraint.of(ready(compiler, WORDS))
    made(maker, MaskedRow(walked, list(known[:-1])))
    follows = Constraint.anew(walked)
    row = MaskedRow(follows, list(known))
    while not row.masks or row.is_handed_back:
        made(maker, row)
    assert follows.num_known == len(known) and follows._share is not None
    assert follows._share.num_tokens == 0


def test_an_heir_that_could_not_be_compiled_is_nobodys_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    first, text = ready(compiler, WORDS), text_tokenizer().encode("no, thank you")
    compile_anew, lacks = first._compile_anew, [MemoryError()]

    def compile_later() -> LLMatcher:
        if lacks:
            raise lacks.pop()
        return compile_anew()

    monkeypatch.setattr(first, "_compile_anew", compile_later)
    some = [spoiled(Constraint.of(first)) for _ in range(3)]
    for follows in some:
        follows.begin_again()
        follows.catch_up(text[:1])
    assert not lacks and not any(follows.failure or follows.is_spent for follows in some)


def test_answers_that_spend_a_compile_at_the_same_place_go_on_with_a_common_one() -> None:
    """As with long strings: what is left behind is not taken again."""
    schema = schema_grammar(strings(a=9000, b=9000), param="s")
    compiler = GrammarCompiler(grammar_tokenizer)
    known = text_tokenizer().encode('{"a": "' + "some words of it " * 500)
    first = ready(compiler, schema)
    some = [spoiled(Constraint.of(first)) for _ in range(6)]
    bits = llguidance.numpy.allocate_token_bitmask(1, card().config.vocab_size)
    for follows in some:
        follows.begin_again()
        follows.catch_up(known[:-200])
    for token in known[-200:]:
        for follows in some:
            llguidance.numpy.fill_next_token_bitmask(follows.matcher, bits)
            follows.catch_up([token])
    assert len({follows.grammar for follows in some}) == 1
    assert not any(follows.failure or follows.is_spent for follows in some)
    assert not compiler.own.num_bytes


def test_states_that_a_draft_has_taken_end_no_answer() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    follows = spoiled(Constraint.of(ready(compiler, WORDS)))
    follows.begin_again()
    follows.note_walk()
    spoiled(follows)
    assert follows.is_spent and follows.failure is None and not follows.may_draft
    follows.begin_again()
    spoiled(follows)
    assert follows.failure is not None


def test_a_compile_that_many_tokens_have_followed_is_replaced_and_nobody_waits() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    worn = ready(compiler, WORDS)
    worn.num_followed = 1 + WORN_BYTES // BYTES_PER_TOKEN
    assert compiler.compile(WORDS) is worn and not compiler.is_busy
    assert worn.successor is not None
    made = worn.successor
    made.start()
    fresh = compiler.compile(WORDS)
    assert fresh is made and fresh.is_ready and not fresh.is_worn
    assert compiler.compile(WORDS) is fresh


def test_a_long_answer_keeps_no_compile_alive_that_came_after_its_own() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    held = ready(compiler, WORDS)
    made = [weakref.ref(held)]
    while len(made) < 4:
        now = compiler.compile(WORDS)
        now.num_followed = 1 + WORN_BYTES // BYTES_PER_TOKEN
        assert compiler.compile(WORDS) is now and now.successor is not None
        now.successor.start()
        made.append(weakref.ref(compiler.compile(WORDS)))
        del now
    assert not compiler.is_busy  # a look, after which it forgets those that are ready
    gc.collect()
    assert [compile_of() is not None for compile_of in made] == [True, False, False, True]


def test_what_answers_add_to_a_kept_compile_counts_once_they_are_over() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    found, before = ready(compiler, WORDS), compiler._kept.num_bytes
    Constraint.of(found).catch_up(text_tokenizer().encode("no, thank"))
    found.leave()
    assert found.num_followed > 0
    assert compiler._kept.num_bytes == before + found.num_followed * BYTES_PER_TOKEN


def ready(compiler: GrammarCompiler, grammar: Grammar) -> CompiledGrammar:
    """Asked for, and waited for."""
    found = compiler.compile(grammar)
    found.start()
    assert found.is_ready and found.error is None
    return found


def spoiled(follows: Constraint) -> Constraint:
    """As if its matcher had met a limit."""
    follows.matcher.consume_token(0)
    follows.check()
    return follows


def mask_maker() -> MaskMaker:
    """As an engine's."""
    return MaskMaker(card().config.vocab_size, GrammarMeter(), ends=card().eos_token_ids)


def made(maker: MaskMaker, row: MaskedRow) -> list[Any]:
    """Its masks, once its job is done."""
    maker.begin([row])
    assert row.job is not None
    row.job.result(60)
    return row.masks
