"""Masks of a step: all rows in one call, and a row that takes too long ends alone."""

from __future__ import annotations

from threading import Event

import numpy as np
import torch
from llguidance import LLTokenizer

from cluster.grammar import Grammar, GrammarKind
from engine.sampling.grammars.compiler import MAX_KEPT, GrammarCompiler
from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.masks import MaskedRow, MaskMaker
from engine.sampling.grammars.meter import GrammarMeter
from router.grammar.lark import choice_grammar
from tests.engine.sampling.grammars.grammar_engine import card, grammar_tokenizer, text_tokenizer

YES = choice_grammar(["yes"], param="c")
NO = choice_grammar(["no"], param="c")


class ScriptedClock:
    """Each look is so much later as was said."""

    def __init__(self, *steps_s: float) -> None:
        self._steps_s = list(steps_s)
        self._now_s = 0.0

    def __call__(self) -> float:
        self._now_s += self._steps_s.pop(0) if self._steps_s else 0.0
        return self._now_s


def constraint(compiler: GrammarCompiler, grammar: Grammar) -> Constraint:
    return Constraint(compiler.compile(grammar).start())


def allowed(mask: torch.Tensor) -> list[int]:
    bits = np.unpackbits(mask.numpy().view(np.uint8), bitorder="little")
    return [int(i) for i in np.flatnonzero(bits)]


def masks(**clocks: ScriptedClock) -> MaskMaker:
    return MaskMaker(card().config.vocab_size, GrammarMeter(), **clocks)  # type: ignore[arg-type]


def test_rows_of_many_sequences_have_each_their_own_mask() -> None:
    compiler, maker = GrammarCompiler(grammar_tokenizer), masks()
    grammars = [YES, NO] * 20
    rows = [MaskedRow(constraint(compiler, grammar), [7, 7], 2) for grammar in grammars]
    maker.begin(rows)
    texts = text_tokenizer()
    for grammar, mask in zip(grammars, maker.take(), strict=True):
        word = "yes" if grammar is YES else "no"
        found = [texts.decode([token_id]) for token_id in allowed(mask)]
        assert found and all(text and word.startswith(text) for text in found)


def test_tokens_are_fed_once_however_often_masks_are_made() -> None:
    compiler, maker = GrammarCompiler(grammar_tokenizer), masks()
    [first] = text_tokenizer().encode("yes")
    row = MaskedRow(constraint(compiler, YES), [7, first], 1)
    for _ in range(3):
        maker.begin([row])
        [mask] = maker.take()
        assert allowed(mask) == list(card().eos_token_ids)
    assert row.constraint.num_fed == 1


def test_a_step_that_took_long_is_looked_into_and_the_slow_row_ends_alone() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    maker = masks(
        clock=ScriptedClock(0, 0.2, 0, 0.2, 0, 0.0), row_clock=ScriptedClock(0, 0.01, 0, 0.07)
    )
    rows = [MaskedRow(constraint(compiler, grammar), [7], 1) for grammar in (YES, NO)]
    maker.begin(rows)
    maker.take()
    assert [row.constraint.error for row in rows] == [None, None]
    maker.begin(rows)
    maker.take()
    assert rows[0].constraint.error is None
    error = rows[1].constraint.error
    assert error is not None and "took 70 ms" in error.message


def test_rows_that_are_dear_together_end_until_the_rest_is_within_a_step() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    row_clock = ScriptedClock(0, 0.03, 0, 0.04, 0, 0.001)
    maker = masks(clock=ScriptedClock(0, 0.2, 0, 0.2), row_clock=row_clock)
    rows = [MaskedRow(constraint(compiler, grammar), [7], 1) for grammar in (YES, NO, YES)]
    for _ in range(2):
        maker.begin(rows)
        maker.take()
    assert [row.constraint.error is None for row in rows] == [True, False, True]


def test_a_busy_machine_ends_nobody() -> None:
    compiler = GrammarCompiler(grammar_tokenizer)
    maker = masks(clock=ScriptedClock(*[0.5] * 8), row_clock=ScriptedClock())
    row = MaskedRow(constraint(compiler, YES), [7], 1)
    for _ in range(4):
        maker.begin([row])
        maker.take()
    assert row.constraint.error is None


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


def test_a_tokenizer_that_cannot_follow_grammars_ends_only_who_asks() -> None:
    def fails() -> None:
        raise OSError("no such file")

    compiler = GrammarCompiler(fails)  # type: ignore[arg-type]
    asked = compiler.compile(YES)
    while not asked.is_ready:
        pass
    assert asked.error is not None and "no such file" in asked.error.message
