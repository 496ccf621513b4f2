"""One grammar that is compiled, and what its answers make of it.

    asked for -> ready, or an error
                  |-> start: a matcher for each sequence
                  |-> worn by its answers' tokens: another one is made ahead, which those that come
                  |   then begin with
                  '-> spent: lost; its answers begin again, with one heir for all of them. Those for
                      whom that is too little have each their own then

All its matchers have one lexer, whose states stay and are limited. So a compile is not used for
ever, and what ends by that limit is the compile, and no answer. Answers take the same states at the
same place: most of those that a spent compile has are of places which they have left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from weakref import WeakSet

import structlog
from llguidance import LLMatcher

from cluster.errors import InternalError, SplitserveError
from cluster.models.text.grammars import in_short
from engine.sampling.grammars.kept_grammars import grown_bytes, likely_bytes
from engine.sampling.grammars.own_compiles import OwnCompiles, OwnShare

WORN_BYTES = 8 << 20
"""A compile that may have grown by so much, which takes 800 tokens or more, is followed by another.
Cold, a mask takes 0.1 ms, and later 0.03 to 0.08; a compile 0.1 to 1, beside the steps."""
_LOG = structlog.get_logger()


class CompiledGrammar:
    """One grammar, from the moment when it was asked for. The engine's thread alone, but for what
    is said to be of any."""

    def __init__(
        self,
        first: Future[LLMatcher],
        digest: bytes = b"",
        *,
        compile_anew: Callable[[], LLMatcher],
        own: OwnCompiles,
        weigh: Callable[[CompiledGrammar], None] | None = None,
        text_bytes: int = 0,
    ) -> None:
        """`compile_anew`: for answers that begin again; may be called by any thread. `own`: of the
        engine. `weigh` is told when an answer is over. `text_bytes`: what the grammar's text
        has."""
        self.first = first
        self._compile_anew, self._own, self._weigh = compile_anew, own, weigh
        self.digest = digest
        self._text_bytes = text_bytes
        self._lock = threading.Lock()
        self._heir: CompiledGrammar | None = None
        self._is_heir, self._num_joined = False, 0
        self._followers: WeakSet[OwnShare] = WeakSet()
        """Of an heir: those of all answers that follow it now."""
        self._is_fine = False
        self._num_users = 0
        self.is_dear = False
        """A mask of one of its answers took long: those of all others are timed as well."""
        self.is_spent = False
        """Nothing follows it any more: who has begun begins again."""
        self.num_followed = 0
        """Tokens, about, of all its answers. Any thread."""
        self.successor: CompiledGrammar | None = None
        """The next one, which is made ahead."""

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
        return InternalError(f"its grammar could not be compiled: {cause!r}")

    @property
    def is_lost(self) -> bool:
        """Nobody waited for it any more, or what went wrong may not go wrong again."""
        return self.is_spent or self.first.cancelled() or self.error is not None

    @property
    def is_worn(self) -> bool:
        """So many answers have followed it that another one is better."""
        return grown_bytes(self.num_followed) >= WORN_BYTES

    @property
    def num_bytes(self) -> int:
        """It, its heir, and what their answers have added, by estimate."""
        heir_bytes = 0 if self._heir is None else self._heir.num_bytes
        return likely_bytes(self._text_bytes) + grown_bytes(self.num_followed) + heir_bytes

    def enter(self) -> None:
        """One more request has it."""
        self._num_users += 1

    def leave(self) -> None:
        """A request that had it is over."""
        self._num_users -= 1
        if not self._num_users:
            self.first.cancel()  # no effect on one that is begun, or done
        if self._weigh is not None:
            self._weigh(self)

    def start(self) -> LLMatcher:
        """At the beginning of an answer; waits where it is not ready. Raises its error."""
        return self.first.result().deep_copy()

    def heir(self) -> CompiledGrammar | None:
        """What its answers that begin again go on with: the first that asks makes it, and others
        wait for that. None: it is spent as well, it could not be made, or this is one: each goes on
        with its own. Any thread."""
        if self._is_heir:
            return None
        with self._lock:
            heir, is_first = self._heir, self._heir is None
            if heir is None:
                heir = self._heir = self._new_heir()
        if is_first:
            try:
                heir.first.set_result(self._compile_anew())
            except BaseException as error:
                heir.first.set_exception(error)
        return None if heir.is_spent or heir.first.exception() is not None else heir

    def join(self, num_replayed: int) -> tuple[LLMatcher, OwnShare]:
        """As `start`, of an heir, for an answer of so many tokens. The share counts while no other
        follows it. Any thread."""
        with self._lock:
            self._num_joined += 1
            share = self._own.take(self._text_bytes, num_replayed, self._followers)
            return self.start(), share

    @property
    def is_of_one(self) -> bool:
        """An heir that one answer alone has followed. Any thread."""
        return self._is_heir and self._num_joined == 1

    def take_share(self, num_replayed: int) -> OwnShare:
        """Before `anew`, for an answer of so many tokens, which holds it for as long as the
        matcher. Any thread."""
        return self._own.take(self._text_bytes, num_replayed)

    def is_too_large(self, share: OwnShare) -> bool:
        """The answer that has it is to end: see OwnCompiles. Any thread."""
        return self._own.is_too_large(share)

    def anew(self) -> LLMatcher:
        """As `start`, of a compile that no other answer has, made by the calling thread, which may
        be any. Raises InvalidRequest."""
        return self._compile_anew()

    def spend(self, cause: str) -> None:
        """One of its answers could not go on, and it may be for what others did. Any thread."""
        if not self.is_spent:
            self.is_spent = True
            _LOG.info(
                "a compiled grammar is spent; its answers go on with another",
                digest=self.digest.hex()[:16],
                num_tokens=self.num_followed,
                cause=in_short(cause),
            )

    def _new_heir(self) -> CompiledGrammar:
        made = CompiledGrammar(
            Future(),
            self.digest,
            compile_anew=self._compile_anew,
            own=self._own,
            text_bytes=self._text_bytes,
        )
        made._is_heir, made.is_dear = True, self.is_dear
        return made
