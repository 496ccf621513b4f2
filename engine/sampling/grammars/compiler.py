"""Grammars, compiled beside the engine's thread and kept for whoever asks with the same text.

    compile -> CompiledGrammar: asked for -> ready, or an error
                                   |         '-> start: a matcher for each sequence
                                   '-> leave, by all who asked: it is not begun any more

One at a time, of each owner by turns: who asks for many waits for them, and others for one of them.
The model's tokenizer for grammars is loaded first, in the same thread, while weights are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import llguidance.numpy
from llguidance import LLMatcher, LLTokenizer

from cluster.deadline import Clock
from cluster.errors import GrammarFailed, SplitserveError
from cluster.grammar import Grammar
from cluster.models.text.grammars import compiled, in_short
from cluster.process.own_lateness import SeenTime
from engine.sampling.grammars.compile_turns import CompileTurns
from engine.sampling.grammars.kept_grammars import KeptGrammars, likely_bytes
from engine.sampling.grammars.meter import GrammarMeter
from engine.sampling.grammars.step_back import step_back


class CompiledGrammar:
    """One grammar, from the moment when it was asked for. The engine's thread alone."""

    def __init__(self, first: Future[LLMatcher], digest: bytes = b"") -> None:
        self.first = first
        self.digest = digest
        self._is_fine = False
        self._num_users = 0
        self.is_dear = False
        """A mask of one of its answers took long: those of all others are timed as well."""

    @property
    def is_ready(self) -> bool:
        """`start` may be called, or there is an error."""
        return self._is_fine or self.first.done()

    @property
    def error(self) -> SplitserveError | None:
        """Why it cannot be followed; None: it can, or nobody knows yet."""
        if self._is_fine or not self.first.done() or self.first.cancelled():
            return None
        cause = self.first.exception()
        self._is_fine = cause is None
        if cause is None:
            return None
        if isinstance(cause, SplitserveError):
            return cause
        return GrammarFailed(f"its grammar could not be compiled: {cause!r}")

    @property
    def is_lost(self) -> bool:
        """Nobody waited for it any more, or what went wrong may not go wrong again."""
        return self.first.cancelled() or self.error is not None

    def enter(self) -> None:
        """One more request has it."""
        self._num_users += 1

    def leave(self) -> None:
        """A request that had it is over."""
        self._num_users -= 1
        if not self._num_users:
            self.first.cancel()  # no effect on one that is begun, or done

    def start(self) -> LLMatcher:
        """At the beginning of an answer; waits where it is not ready. Raises its error."""
        return self.first.result().deep_copy()


class GrammarCompiler:
    """One engine's. `close` once, when nobody asks any more."""

    def __init__(
        self, load: Callable[[], LLTokenizer], *, clock: Clock = time.perf_counter
    ) -> None:
        """`load` is called once, at once, in the compiling thread."""
        self._turns = CompileTurns()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="grammars", initializer=step_back)
        self._under_way: Grammar | None = None
        self._watched: Grammar | None = None
        """The one that was under way at the last look."""
        self._tokenizer = self._pool.submit(load)
        self._kept: KeptGrammars[CompiledGrammar] = KeptGrammars()
        self._not_ready: list[CompiledGrammar] = []
        self._clock, self._watched_for = clock, SeenTime(clock)
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
        if under_way is None or under_way is not self._watched:
            self._watched = under_way
            self._watched_for.renew()
            return 0.0
        return self._watched_for.look()

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Returns at once; for one request, which leaves it at its end."""
        digest = grammar.digest
        found = self._kept.get(digest)
        if found is None or found.is_lost:
            found = CompiledGrammar(Future(), digest)
            self._put(grammar, found)
            self._not_ready.append(found)
            num_bytes = likely_bytes(len(grammar.text.encode()))
            self._kept.put(digest, found, owner=grammar.owner, num_bytes=num_bytes)
        elif found.is_ready:
            self._kept.touch(digest)
        else:
            self._put(grammar, found)
        found.enter()
        return found

    def close(self) -> None:
        """What is compiled at this moment is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._turns.cancel_all()

    def _put(self, grammar: Grammar, compiled: CompiledGrammar) -> None:
        self._turns.put(grammar, compiled.first)
        self._pool.submit(self._compile_next)

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
        tokenizer, began_s = self._tokenizer.result(), self._clock()
        self._under_way = grammar
        try:
            matcher = _with_first_mask(compiled(tokenizer, grammar), tokenizer)
        finally:
            self._under_way = None
        self.meter.num_compiled += 1
        self.meter.compile_s += self._clock() - began_s
        return matcher


def _with_first_mask(matcher: LLMatcher, tokenizer: LLTokenizer) -> LLMatcher:
    """Its copies know what this finds. Raises GrammarFailed."""
    bits = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)
    llguidance.numpy.fill_next_token_bitmask(matcher, bits)
    if error := matcher.get_error():
        raise GrammarFailed(f"its grammar cannot be followed: {in_short(error)}")
    return matcher
