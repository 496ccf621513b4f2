"""Grammars, compiled beside the engine's thread and kept for their owner, who asks with the same
text again.

    compile -> CompiledGrammar: asked for -> ready, or an error
                                   |         |-> start: a matcher for each sequence
                                   |         |-> worn by its answers' tokens: another one is made
                                   |         |   ahead, which those that come then begin with
                                   |         '-> spent: lost; see CompiledGrammar
                                   '-> leave, by all who asked: it is not begun any more

One at a time, of each owner by turns: who asks for many waits for them, and others for one of them.
The model's tokenizer for grammars is loaded first, in the same thread, while weights are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

import llguidance.numpy
from llguidance import LLMatcher, LLTokenizer

from cluster.deadline import Clock
from cluster.errors import GrammarFailed, SplitserveError
from cluster.grammar import Grammar
from cluster.models.text.grammars import compiled, in_short
from cluster.process.own_lateness import SeenTime
from engine.sampling.grammars.compile_turns import CompileTurns
from engine.sampling.grammars.compiled_grammar import CompiledGrammar
from engine.sampling.grammars.kept_grammars import KeptGrammars
from engine.sampling.grammars.loaded_tokenizer import LoadedTokenizer
from engine.sampling.grammars.meter import GrammarMeter
from engine.sampling.grammars.own_compiles import OwnCompiles
from engine.sampling.grammars.step_back import step_back


class GrammarCompiler:
    """One engine's. `close` once, when nobody asks any more."""

    def __init__(
        self, load: Callable[[], LLTokenizer], *, clock: Clock = time.perf_counter
    ) -> None:
        """`load` is called at once, in the compiling thread; see LoadedTokenizer."""
        self._turns = CompileTurns()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="grammars", initializer=step_back)
        self._under_way: Grammar | None = None
        self._last_seen: Grammar | None = None
        """The one that was under way at the last look."""
        self._tokenizer = LoadedTokenizer(load, clock)
        self._first_load = self._pool.submit(self._tokenizer.get)
        self._kept: KeptGrammars[CompiledGrammar] = KeptGrammars()
        self._not_ready: list[CompiledGrammar] = []
        self._clock, self._seen_for = clock, SeenTime(clock)
        self.own = OwnCompiles()
        self.meter = GrammarMeter()

    @property
    def is_busy(self) -> bool:
        """True while something is compiled: ask again soon."""
        if self._not_ready:
            self._not_ready = [grammar for grammar in self._not_ready if not grammar.is_ready]
        return bool(self._not_ready)

    def look(self) -> float:
        """At the one that is compiled now. Returns for how many seconds it has been, since it was
        first looked at; 0.0: none is. Of the time between two looks a second at most counts: an
        engine that was stopped has waited for nobody meanwhile."""
        under_way = self._under_way
        if under_way is None or under_way is not self._last_seen:
            self._last_seen = under_way
            self._seen_for.renew()
            return 0.0
        return self._seen_for.look()

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Returns at once; for one request, which leaves it at its end."""
        digest = grammar.digest
        found = self._kept.get(digest)
        if found is None or found.is_lost:
            found = self._begin(grammar, digest, found)
            self._not_ready.append(found)
            self._keep(found, grammar)
        elif found.is_ready:
            self._kept.touch(digest)
            found = self._fresh(found, grammar)
        found.enter()
        return found

    def _begin(
        self, grammar: Grammar, digest: bytes, before: CompiledGrammar | None
    ) -> CompiledGrammar:
        """`before`: another compile of the same."""
        made = CompiledGrammar(
            Future(),
            digest,
            compile_anew=partial(self._compile_anew, grammar),
            own=self.own,
            weigh=self._weigh,
            text_bytes=len(grammar.text.encode()),
        )
        made.is_dear = before is not None and before.is_dear
        self._turns.put(grammar, made.first)
        self._pool.submit(self._compile_next)
        return made

    def _keep(self, found: CompiledGrammar, grammar: Grammar) -> None:
        self._kept.put(found.digest, found, owner=grammar.owner, num_bytes=found.num_bytes)

    def _fresh(self, worn: CompiledGrammar, grammar: Grammar) -> CompiledGrammar:
        """The one that follows it, once that is ready: nobody waits for it."""
        if not worn.is_worn:
            return worn
        fresh = worn.successor
        if fresh is None or (fresh.is_ready and fresh.is_lost):
            worn.successor = self._begin(grammar, worn.digest, worn)
            return worn
        if not fresh.is_ready:
            return worn
        fresh.is_dear |= worn.is_dear
        worn.successor = None  # a long answer of it keeps none that follows alive
        self._keep(fresh, grammar)
        return fresh

    def _weigh(self, found: CompiledGrammar) -> None:
        """By what its answers have added."""
        if self._kept.get(found.digest) is found:
            self._kept.weigh(found.digest, found.num_bytes)

    def await_load(self, most_s: float) -> SplitserveError | None:
        """Before anybody asks: until the tokenizer is there, so many seconds at most. Returns why
        no grammar can be followed, as far as is known; that is logged."""
        wait([self._first_load], most_s)
        return self._tokenizer.why_not

    def close(self) -> None:
        """What is compiled at this moment is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._turns.cancel_all()

    def _compile_next(self) -> None:
        """In the compiling thread, as often as something was put."""
        taken = self._turns.take()
        if taken is None:
            return
        grammar, result = taken
        try:
            result.set_result(self._compile(grammar))
        except BaseException as error:
            result.set_exception(error)

    def _compile(self, grammar: Grammar) -> LLMatcher:
        tokenizer, began_s = self._tokenizer.get(), self._clock()
        self._under_way = grammar
        try:
            matcher = _with_first_mask(compiled(tokenizer, grammar), tokenizer)
        finally:
            self._under_way = None
        self.meter.note_compiled(self._clock() - began_s)
        return matcher

    def _compile_anew(self, grammar: Grammar) -> LLMatcher:
        """For answers that begin again, in a thread that makes their masks."""
        began_s = self._clock()
        matcher = compiled(self._tokenizer.get(), grammar)
        self.meter.note_compiled(self._clock() - began_s)
        return matcher


def _with_first_mask(matcher: LLMatcher, tokenizer: LLTokenizer) -> LLMatcher:
    """Its copies know what this finds. Raises GrammarFailed."""
    bits = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)
    llguidance.numpy.fill_next_token_bitmask(matcher, bits)
    if error := matcher.get_error():
        raise GrammarFailed(f"its grammar cannot be followed: {in_short(error)}")
    return matcher
