"""Masks: all rows of a step in one call, and one that takes too long ends alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from llguidance import LLTokenizer

from cluster.grammar import Grammar, GrammarKind
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.kept_grammars import MAX_KEPT
from engine.sampling.grammars.masked_row import MaskedRow, any_done, only_token
from engine.sampling.grammars.masks import MaskMaker
from engine.sampling.grammars.meter import GrammarMeter
from engine.step.mask_waits import look_at_compiling
from engine.step.step_health import EngineBroken
from kernels.token_mask import TokenMask
from router.grammar.lark import choice_grammar
from tests.engine.sampling.grammars.grammar_engine import (
    card,
    grammar_tokenizer,
    schema_grammar,
    text_tokenizer,
)
from tests.engine.step.engine_scenario import VirtualClock

YES = choice_grammar(["yes"], param="c")
NO = choice_grammar(["no"], param="c")
LONG = " ".join(f"word {i}" for i in range(16))
PERSON = schema_grammar(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "born": {"type": "integer"}},
        "required": ["name", "born"],
        "additionalProperties": False,
    }
)


class ScriptedClock:
    """Each look is so much later as was said."""

    def __init__(self, *steps_s: float) -> None:
        self._steps_s = list(steps_s)
        self._now_s = 0.0

    def __call__(self) -> float:
        self._now_s += self._steps_s.pop(0) if self._steps_s else 0.0
        return self._now_s


def constraint(compiler: GrammarCompiler, grammar: Grammar) -> Constraint:
    compiled = compiler.compile(grammar)
    return Constraint(compiled.start(), compiled)


def row(constraint: Constraint, known: list[int], **more: Any) -> MaskedRow:
    """After these tokens of its answer."""
    return MaskedRow(constraint, known[constraint.num_known :], **more)


def allowed(mask: TokenMask) -> list[int]:
    bits = np.unpackbits(mask.words.numpy().view(np.uint8), bitorder="little")
    return [int(i) for i in np.flatnonzero(bits)]


def masks(**more: Any) -> MaskMaker:
    """Nothing takes long there, unless a clock says so."""
    more.setdefault("clock", lambda: 0.0)
    ends = frozenset(card().eos_token_ids)
    return MaskMaker(card().config.vocab_size, GrammarMeter(), ends=ends, **more)


def made(maker: MaskMaker, rows: list[MaskedRow]) -> list[Sequence[TokenMask]]:
    """Once all are there."""
    maker.begin(rows)
    for each in rows:
        assert each.job is not None
        each.job.result(60)
    return [each.masks for each in rows]


@pytest.mark.parametrize("num_threads", [1, 3])
def test_rows_of_many_sequences_have_each_their_own_mask(num_threads: int) -> None:
    compiler, maker = GrammarCompiler(grammar_tokenizer), masks(num_threads=num_threads)
    grammars = [YES, NO] * 20
    found = made(maker, [row(constraint(compiler, grammar), []) for grammar in grammars])
    texts = text_tokenizer()
    for grammar, [mask] in zip(grammars, found, strict=True):
        word = "yes" if grammar is YES else "no"
        words = [texts.decode([token_id]) for token_id in allowed(mask)]
        assert words and all(text and word.startswith(text) for text in words)


def test_tokens_are_fed_once_however_often_masks_are_made() -> None:
    compiler, maker = GrammarCompiler(grammar_tokenizer), masks()
    known, follows = text_tokenizer().encode("yes"), constraint(compiler, YES)
    for _ in range(3):
        [[mask]] = made(maker, [row(follows, known)])
        assert allowed(mask) == list(card().eos_token_ids)
    assert follows.num_fed == len(known) == 1


def test_the_mask_before_the_last_is_written_once_more_and_the_last_stays() -> None:
    compiler, maker = GrammarCompiler(grammar_tokenizer), masks()
    answer = text_tokenizer().encode('{"name": "Ada Lovelace", "born": 1815}')
    follows, found = constraint(compiler, PERSON), list[TokenMask]()
    for length in range(1, len(answer)):
        before = [mask.words.clone() for mask in found[-1:]]
        found += made(maker, [row(follows, answer[:length])])[0]
        assert all(torch.equal(found[-2].words, words) for words in before)
        [[alone]] = made(maker, [row(constraint(compiler, PERSON), answer[:length])])
        assert torch.equal(found[-1].words, alone.words)
    assert len({mask.address for mask in found}) == 2


def test_every_row_of_a_draft_has_the_mask_of_the_tokens_before_it() -> None:
    """And the grammar is where it was: the next mask is that of the first row."""
    compiler, maker = GrammarCompiler(grammar_tokenizer), masks()
    answer = text_tokenizer().encode('{"name": "Ada Lovelace", "born": 1815}')
    drafted = [constraint(compiler, PERSON) for _ in range(3)]
    made(maker, [row(each, answer[:2]) for each in drafted])
    found = made(maker, [row(each, answer[:2], draft=answer[2:9]) for each in drafted])
    for length in range(2, 10):
        [[alone]] = made(maker, [row(constraint(compiler, PERSON), answer[:length])])
        for each in found:
            assert torch.equal(each[length - 2].words, alone.words)
    for each, [first, *_] in zip(drafted, found, strict=True):
        [[again]] = made(maker, [row(each, answer[:2])])
        assert torch.equal(again.words, first.words)
        assert each.failure is None


def test_a_guess_that_the_grammar_does_not_allow_spoils_no_mask_up_to_it() -> None:
    compiler, maker = GrammarCompiler(grammar_tokenizer), masks()
    answer = text_tokenizer().encode('{"name": "Ada"')
    follows = constraint(compiler, PERSON)
    made(maker, [row(follows, answer[:2])])
    wrong = text_tokenizer().encode("}")
    [found] = made(maker, [row(follows, answer[:2], draft=[answer[2], *wrong, *wrong])])
    for length in (2, 3):
        [[alone]] = made(maker, [row(constraint(compiler, PERSON), answer[:length])])
        assert torch.equal(found[length - 2].words, alone.words)
    assert wrong[0] not in allowed(found[1])
    [[after]] = made(maker, [row(follows, answer[:3])])
    assert torch.equal(after.words, found[1].words) and follows.failure is None


def test_tokens_are_forced_while_a_mask_has_one_bit_and_are_what_masks_allow() -> None:
    compiler, maker = GrammarCompiler(grammar_tokenizer), masks()
    word = "a sentence of which every token but the first is the only one that may come"
    follows = constraint(compiler, choice_grammar([word, "no"], param="c"))
    known = text_tokenizer().encode(word)[:1]
    forcing = row(follows, known, most_forced=12)
    [found] = made(maker, [forcing])
    assert len(forcing.forced) > 4 and len(found) == 1 + len(forcing.forced)
    walker = constraint(compiler, choice_grammar([word, "no"], param="c"))
    for place, token_id in enumerate(forcing.forced):
        [[mask]] = made(maker, [row(walker, [*known, *forcing.forced[:place]])])
        assert allowed(mask) == [token_id] == allowed(found[place])
    [[after]] = made(maker, [row(walker, [*known, *forcing.forced])])
    assert torch.equal(after.words, found[-1].words)
    assert follows.num_fed == walker.num_fed


def test_whether_a_token_is_forced_is_told_where_somebody_looked() -> None:
    """Watchers look for none: a dear answer says nothing of others'."""
    compiler, maker = GrammarCompiler(grammar_tokenizer), masks()
    for is_watched, asked, told in [
        (False, {"most_forced": 4}, True),
        (False, {"is_sample": True}, True),
        (False, {}, None),
        (True, {"most_forced": 4}, None),
    ]:
        follows = constraint(compiler, YES)
        follows.is_watched = is_watched
        asks = row(follows, [], **asked)
        made(maker, [asks])
        assert asks.is_forced is told and asks.outlook is not None
    open_ended = row(constraint(compiler, PERSON), [], most_forced=4)
    made(maker, [open_ended])
    assert open_ended.is_forced is bool(open_ended.forced)


def test_what_was_fed_ahead_is_taken_back_where_other_tokens_come() -> None:
    compiler, maker = GrammarCompiler(grammar_tokenizer), masks()
    follows = constraint(compiler, PERSON)
    answer = text_tokenizer().encode('{"name": "Ada"')
    follows.catch_up(answer[:2])
    for token_id in text_tokenizer().encode('": "Bo'):
        follows.feed_ahead(token_id)
    [[mask]] = made(maker, [row(follows, answer[:3])])
    [[alone]] = made(maker, [row(constraint(compiler, PERSON), answer[:3])])
    assert torch.equal(mask.words, alone.words) and follows.failure is None


def test_an_end_of_the_answer_is_forced_and_not_fed() -> None:
    compiler, maker = GrammarCompiler(grammar_tokenizer), masks()
    [end] = card().eos_token_ids
    forcing = row(constraint(compiler, YES), text_tokenizer().encode("yes"), most_forced=9)
    [found] = made(maker, [forcing])
    assert (forcing.forced, len(found)) == ([end], 1)
    assert forcing.constraint.num_fed == 1


def test_a_job_that_takes_long_hands_back_what_is_not_made_and_watches_what_is_like_it() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    maker = masks(clock=ScriptedClock(0, 0.001, 0.03))
    follow = [constraint(compiler, grammar) for grammar in (NO, YES, NO, YES, YES)]
    asked = [row(each, []) for each in follow]
    made(maker, asked)
    assert [each.is_handed_back for each in asked] == [False, False, True, True, True]
    assert [each.is_watched for each in follow] == [False, True, False, True, True]
    again = [row(each, []) for each in follow[2:]]
    made(maker, again)
    assert all(len(each.masks) == 1 for each in again)


def test_a_draft_is_never_walked_by_watchers() -> None:
    """They make one mask alone: what follows would be drawn from any token."""
    compiler, maker = GrammarCompiler(grammar_tokenizer), masks()
    answer = text_tokenizer().encode('{"name": "Ada Lovelace"')
    follows = constraint(compiler, PERSON)
    made(maker, [row(follows, answer[:2])])
    follows.is_watched = True  # as something else may find before it is begun
    walk = row(follows, answer[:2], draft=answer[2:])
    made(maker, [walk])
    assert walk.is_whole and len(walk.masks) == len(answer) - 1


def test_for_how_long_a_grammar_is_compiled_is_known() -> None:
    clock = VirtualClock()
    compiler = GrammarCompiler(grammar_tokenizer, clock=clock)
    assert compiler.look() == 0.0
    compiler._under_way = YES
    for _ in range(30):
        look_at_compiling(compiler)
        clock.now_s += 1.0
    with pytest.raises(EngineBroken, match="not compiled in 30 s"):
        look_at_compiling(compiler)
    compiler._under_way = NO  # the next one
    look_at_compiling(compiler)
    clock.now_s += 100.0  # the engine was stopped, and its threads with it
    look_at_compiling(compiler)
    compiler._under_way = None
    compiler.compile(YES).start()
    look_at_compiling(compiler)
    assert compiler.look() == 0.0


def test_a_slow_row_of_a_job_ends_alone() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    maker = masks(clock=ScriptedClock(0, 0.005, 0.2), row_clock=ScriptedClock(0, 0.001, 0, 0.07))
    follow = [constraint(compiler, grammar) for grammar in (YES, NO)]
    made(maker, [row(each, []) for each in follow])
    assert [each.is_watched for each in follow] == [True, True]
    for each in follow:
        made(maker, [row(each, [])])
    assert [each.is_watched for each in follow] == [False, True]
    assert follow[0].failure is None
    assert follow[1].failure is not None and "took 70 ms of a core" in follow[1].failure


def test_answers_of_a_grammar_that_was_dear_are_watched_from_their_first_mask_on() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    maker = masks(clock=ScriptedClock(0, 0.2), row_clock=ScriptedClock(0, 0.04))
    first = constraint(compiler, YES)
    for _ in range(2):
        made(maker, [row(first, [])])
    assert first.is_watched and first.failure is None
    assert constraint(compiler, YES).is_watched
    assert not constraint(compiler, NO).is_watched


def test_an_answer_whose_masks_are_dear_one_after_another_ends() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    maker = masks(clock=ScriptedClock(0, 0.2), row_clock=ScriptedClock(*[0, 0.045] * 30))
    follows = constraint(compiler, YES)
    num_masks = 0
    while follows.failure is None:
        made(maker, [row(follows, [])])
        num_masks += 1
    assert num_masks == 24  # one that is not timed, and a second of 45 ms each
    assert "s of a core; allowed: 1.0" in follows.failure


def test_what_is_told_once_more_is_no_mask_and_is_told_in_parts() -> None:
    compiler, known = GrammarCompiler(grammar_tokenizer), text_tokenizer().encode(LONG)
    assert len(known) > 24
    looks = [0, 0, 0.04, 0.04, 0, *[0] * 20]  # eight tokens each 40 ms, of a core
    maker = masks(row_clock=ScriptedClock(*looks))
    follows = constraint(compiler, choice_grammar([LONG], param="c"))
    follows.is_watched = True
    again = row(follows, list(known))
    made(maker, [again])
    assert again.is_handed_back and follows.num_known == 16
    made(maker, [again])
    assert not again.is_handed_back and follows.num_known == len(known)
    assert follows.failure is None and follows.spent_s == 0.0 and not follows.is_watched
    beside = constraint(compiler, choice_grammar([LONG], param="c"))
    [[expected]] = made(masks(), [row(beside, list(known))])
    assert torch.equal(again.masks[0].words, expected.words)


def test_what_takes_too_long_to_be_told_once_more_ends() -> None:
    compiler, known = GrammarCompiler(grammar_tokenizer), text_tokenizer().encode(LONG)
    maker = masks(row_clock=ScriptedClock(0, 0, 2.0))
    follows = constraint(compiler, choice_grammar([LONG], param="c"))
    follows.is_watched = True
    made(maker, [row(follows, list(known))])
    assert follows.failure is not None
    assert "8 tokens once more took 2.0 s of a core; allowed: 1.0" in follows.failure


def test_a_busy_machine_ends_nobody() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    maker = masks(clock=ScriptedClock(*[0.5] * 8), row_clock=ScriptedClock())
    follows = constraint(compiler, YES)
    for _ in range(4):
        made(maker, [row(follows, [])])
    assert follows.failure is None


class AskedJob(Future[float]):
    """Counts who asks whether it is done."""

    num_asked = 0

    def done(self) -> bool:
        """See Future."""
        self.num_asked += 1
        return super().done()


def test_of_rows_under_way_each_job_is_asked_once() -> None:
    compiler, jobs = GrammarCompiler(grammar_tokenizer), [AskedJob(), AskedJob()]
    rows = [row(constraint(compiler, YES), []) for _ in range(7)]
    assert not any_done(rows)  # not begun
    for place, each in enumerate(rows[1:]):
        each.job = jobs[place // 3]
    assert not any_done(rows) and [job.num_asked for job in jobs] == [1, 1]
    jobs[1].set_result(0.0)
    assert any_done(rows) and not any_done(rows[:4])


def test_only_one_bit_is_only_one_token() -> None:
    bits = np.zeros(40, dtype=np.int32)
    assert only_token(bits) is None
    for token_id in (0, 31, 32, 1279):
        bits[:] = 0
        bits[token_id // 32] = np.uint32(1 << token_id % 32).astype(np.int32)
        assert only_token(bits) == token_id
    bits[0] = 3
    assert only_token(bits) is None


def test_compiled_grammars_are_shared_and_so_many_are_kept() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    first = compiler.compile(YES)
    first.start()
    assert compiler.compile(Grammar(YES.text, GrammarKind.LARK)) is first
    for i in range(MAX_KEPT):
        compiler.compile(choice_grammar([str(i)], param="c")).start()
    assert compiler.compile(YES) is not first
    compiler.compile(YES).start()
    assert compiler.meter.num_compiled == MAX_KEPT + 2


def test_what_nobody_waits_for_any_more_is_not_compiled() -> None:
    loads, may_load = Event(), Event()

    def load() -> LLTokenizer:
        loads.set()
        may_load.wait(60)
        return grammar_tokenizer()

    compiler = GrammarCompiler(load)
    assert loads.wait(60)
    left = [compiler.compile(choice_grammar([str(i)], param="c")) for i in range(20)]
    stays = compiler.compile(YES)
    compiler.compile(YES).leave()  # another request's, with the same grammar
    for grammar in left:
        grammar.leave()
    may_load.set()
    stays.start()
    assert compiler.meter.num_compiled == 1
    again = compiler.compile(choice_grammar(["3"], param="c"))
    again.start()
    assert again.error is None and compiler.meter.num_compiled == 2
