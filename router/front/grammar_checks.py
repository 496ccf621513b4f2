"""Grammars that were tried out: what became of them is remembered, so that the next request with
the same one waits for nobody.

    check -> remembered: fine, or refused again
          '-> tried out elsewhere (once for all who wait) -> remembered, but where nobody knows
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from cluster.errors import GrammarFailed, InvalidRequest, SplitserveError
from cluster.grammar import Grammar
from router.front.caller import Caller
from router.front.text_work import TextWork

MAX_REMEMBERED = 4096
"""Digests with a sentence at most: a megabyte."""


class GrammarChecks:
    """One router's, on its event loop."""

    def __init__(self, texts: TextWork, on_refusal: Callable[[str], None]) -> None:
        """`on_refusal` is told why, in one word of a fixed set, for each request."""
        self._texts = texts
        self._on_refusal = on_refusal
        self._outcomes: OrderedDict[bytes, InvalidRequest | None] = OrderedDict()
        self._trials: dict[bytes, asyncio.Task[None]] = {}

    async def check(self, grammar: Grammar, caller: Caller) -> None:
        """Raises InvalidRequest for one that cannot be followed, NotReady and QueueFull where
        nobody knows yet."""
        digest = grammar.digest
        if digest not in self._outcomes:
            await self._try(digest, grammar, caller)
        self._outcomes.move_to_end(digest)
        if (refusal := self._outcomes[digest]) is not None:
            self._on_refusal("costly" if isinstance(refusal, GrammarFailed) else "invalid")
            raise type(refusal)(refusal.message, param=refusal.param)

    async def _try(self, digest: bytes, grammar: Grammar, caller: Caller) -> None:
        trial = self._trials.get(digest)
        if trial is None:
            trial = asyncio.ensure_future(self._texts.try_grammar(grammar, caller))
            self._trials[digest] = trial
            trial.add_done_callback(lambda done: self._note(digest, done))
        try:
            await asyncio.shield(trial)
        except InvalidRequest:
            return
        except SplitserveError:
            self._on_refusal("untried")
            raise

    def _note(self, digest: bytes, done: asyncio.Task[None]) -> None:
        """Before anybody who waits goes on."""
        del self._trials[digest]
        if done.cancelled():
            return
        error = done.exception()
        if error is None or isinstance(error, InvalidRequest):
            self._outcomes[digest] = error
            if len(self._outcomes) > MAX_REMEMBERED:
                self._outcomes.popitem(last=False)
