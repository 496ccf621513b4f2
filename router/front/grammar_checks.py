"""Grammars that were tried out: what became of them is remembered, so that the next request of the
same tenant with the same one waits for nobody. Tenants have shares of what is remembered: one that
asks with ever new ones waits for its own again, and no other does.

    check -> remembered: fine, or refused again; where it was too slow, for minutes
          '-> tried out elsewhere -> the first verdict is for all of the tenant, and is remembered
                   |-> nobody knows: told to those of that address alone
                   '-> the last of the address leaves: given up

Each address that waits has a trial of its own in line, for there addresses take turns: none stands
where another has put it, or is turned away for what another has in line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cluster.deadline import Clock
from cluster.errors import GrammarFailed, GrammarsUnsupported, InvalidRequest, SplitserveError
from cluster.grammar import Grammar, GrammarKind
from cluster.kept_in_shares import KeptInShares
from router.front.caller import Caller
from router.front.text_work import TextWork

COSTLY_S = UNSUPPORTED_S = 300.0
"""So long it is remembered that a grammar is too slow, which a busy machine may have made it, and
that no grammar can be followed. What is wrong stays so."""
MAX_REMEMBERED = 16_384
"""Of all tenants, in shares. Digests with a sentence at most: 7 MB, and 18 where all have been
refused in 300 characters (tracemalloc). To find what goes takes 6 us with a hundred tenants."""


class _Key(NamedTuple):
    """The kind is named in refusals; the digest is the owner's own."""

    kind: GrammarKind
    owner: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Outcome:
    """`refusal`: None: it is fine. `until_s`: None: for good."""

    refusal: InvalidRequest | None
    until_s: float | None = None

    def holds(self, now_s: float) -> bool:
        """Whether nobody has to try again."""
        return self.until_s is None or now_s < self.until_s


@dataclass(slots=True, eq=False)
class _Trial:
    """Of those at one address who wait: there are no more of them than requests."""

    work: asyncio.Task[InvalidRequest | None]
    outcome: asyncio.Future[InvalidRequest | None]
    """Of this trial, or of another address's where that was first."""
    num_waiting: int = 0


class GrammarChecks:
    """One router's, on its event loop."""

    def __init__(
        self,
        texts: TextWork,
        on_refusal: Callable[[str], None],
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        """`on_refusal` is told why, in one word of a fixed set, for each request."""
        self._texts = texts
        self._on_refusal = on_refusal
        self._clock = clock
        self._unsupported = _Outcome(None)
        """Once known, of every grammar."""
        self._outcomes: KeptInShares[_Key, _Outcome] = KeptInShares(MAX_REMEMBERED)
        self._trials: dict[_Key, dict[str, _Trial]] = {}
        """By grammar and address."""

    async def check(self, grammar: Grammar, caller: Caller) -> None:
        """Raises InvalidRequest, with the client's field, for one that cannot be followed; NotReady
        and QueueFull where nobody knows yet."""
        of_all = self._unsupported
        refusal = of_all.refusal if of_all.holds(self._clock()) else None
        refusal = refusal or await self._outcome_of(grammar, caller)
        if refusal is not None:
            self._on_refusal(_reason(refusal))
            raise type(refusal)(refusal.message, param=grammar.param or refusal.param)

    async def _outcome_of(self, grammar: Grammar, caller: Caller) -> InvalidRequest | None:
        key = _Key(grammar.kind, grammar.owner, grammar.digest)
        known = self._outcomes.get(key)
        if known is not None and known.holds(self._clock()):
            self._outcomes.touch(key)
            return known.refusal
        address = caller.address
        trial = self._trials.get(key, {}).get(address) or self._begin(key, grammar, caller)
        trial.num_waiting += 1
        try:
            return await asyncio.shield(trial.outcome)
        except SplitserveError:
            self._on_refusal("untried")
            raise
        finally:
            trial.num_waiting -= 1
            if not trial.num_waiting:
                self._leave(key, address, trial)
                trial.work.cancel()

    def _begin(self, key: _Key, grammar: Grammar, caller: Caller) -> _Trial:
        outcome = asyncio.get_running_loop().create_future()
        trial = _Trial(asyncio.ensure_future(self._try(grammar, caller)), outcome)
        trial.work.add_done_callback(lambda _: self._note(key, caller.address, trial))
        self._trials.setdefault(key, {})[caller.address] = trial
        return trial

    async def _try(self, grammar: Grammar, caller: Caller) -> InvalidRequest | None:
        try:
            await self._texts.try_grammar(grammar, caller)
        except InvalidRequest as error:
            return type(error)(error.message, param=error.param)  # without the frames of this one
        return None

    def _leave(self, key: _Key, address: str, trial: _Trial) -> None:
        """Nobody joins it any more. Idempotent."""
        others = self._trials.get(key, {})
        if others.get(address) is trial:
            del others[address]
            if not others:
                del self._trials[key]

    def _note(self, key: _Key, address: str, trial: _Trial) -> None:
        """Before anybody who waits goes on."""
        work = trial.work
        if not work.cancelled() and work.exception() is None:
            self._decide(key, work.result())
        self._leave(key, address, trial)
        if trial.outcome.done():
            return
        if work.cancelled():
            trial.outcome.cancel()
        elif (error := work.exception()) is not None and trial.num_waiting:
            trial.outcome.set_exception(error)

    def _decide(self, key: _Key, refusal: InvalidRequest | None) -> None:
        """For all addresses of the tenant; the trials of others leave their lines."""
        for trial in self._trials.pop(key, {}).values():
            if not trial.outcome.done():
                trial.outcome.set_result(refusal)
            trial.work.cancel()
        now_s = self._clock()
        if isinstance(refusal, GrammarsUnsupported):
            self._unsupported = _Outcome(refusal, now_s + UNSUPPORTED_S)
            return
        is_costly = isinstance(refusal, GrammarFailed)
        outcome = _Outcome(refusal, now_s + COSTLY_S if is_costly else None)
        self._outcomes.put(key, outcome, owner=key.owner)


def _reason(refusal: InvalidRequest) -> str:
    if isinstance(refusal, GrammarsUnsupported):
        return "unsupported"
    return "costly" if isinstance(refusal, GrammarFailed) else "invalid"
