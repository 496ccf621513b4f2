"""A prompt that a vLLM prefill server computes for another server to read.

    asked -> answered, with all that a reader needs -> KeptBlocks
         '-> refused, broken off, or without it ----> None: the decode server does it alone
         '-> silent, while nobody answers there ----> None
         '-> silent for half of the time to its first token -> None; the server's fault where it
             was silent to everybody, and for long

Cancelled with the request: the connection breaks, and vLLM aborts it and frees its blocks.
"""

from __future__ import annotations

import asyncio
from asyncio import FIRST_COMPLETED
from typing import Any

from cluster.deadline import Clock
from cluster.errors import NotReady, SplitserveError, WorkerLost, WorkerSilent
from cluster.logs import get_logger
from cluster.process.background import cancel
from cluster.process.own_lateness import LateTurn
from router.vllm.completion_body import COMPLETIONS, prefill_body
from router.vllm.kept_blocks import KeptBlocks, parameters_in
from router.vllm.server import VllmServer
from router.vllm.wire import NO_HEADERS, SentHeaders, VllmAnswer, check

LOOKS_PER_LEASE = 12
"""While it computes, this often the loop sees whether it stands itself."""
MIN_LOOK_S = 0.1
MIN_WAIT_S = 0.01
"""Of the last look: time to read what has arrived."""
BLAMED_AFTER_S = 30.0
"""Of silence to everybody: no client's own hurry makes a server that computes a broken one."""
_log = get_logger("vllm")


class PrefillRequest:
    """Of one request; `ask` once."""

    def __init__(self, server: VllmServer, clock: Clock, headers: SentHeaders = NO_HEADERS) -> None:
        """`headers`: beside the wire's own."""
        self._server, self._headers = server, headers
        self._clock = clock
        self.has_failed = False
        """By the server's fault: one that is full, refuses the request, or is silent to this one
        alone, has not."""
        self.took_ms = 0.0

    async def ask(self, body: dict[str, Any], within_s: float) -> KeptBlocks | None:
        """None where the decode server has to compute the prompt: `within_s` is what it leaves for
        that."""
        server, began_s = self._server, self._clock()
        before = server.numbers
        server.num_asked += 1
        server.silence.begin(began_s)
        try:
            answer, answered_s = await self._answered(prefill_body(body), began_s + within_s)
            parameters = parameters_in(check(answer, server.name).body)
        except SplitserveError as error:
            lost = isinstance(error, WorkerLost) and not isinstance(error, WorkerSilent)
            self._note_failed(error.message, failed=lost)
            return None
        finally:
            server.num_asked -= 1
            server.silence.end(self._clock())
        self.took_ms = (self._clock() - began_s) * 1000
        if parameters is None:
            self._note_failed("it named no blocks to read", failed=True)
            return None
        return KeptBlocks(
            parameters,
            answered_s=answered_s,
            lease_s=server.address.lease_s,
            late_reads=before.late_reads,
            clock=self._clock,
            started=before.started,
        )

    async def _answered(self, body: dict[str, Any], until_s: float) -> tuple[VllmAnswer, float]:
        """And when it came, at the earliest: a loop that stood may have it long since. Raises
        WorkerLost or NotReady where none comes."""
        wire, look_s = self._server.wire, self._look_s
        asking = asyncio.ensure_future(
            wire.post(COMPLETIONS, body, timeout_s=None, headers=self._headers)
        )
        lost = asyncio.ensure_future(self._server.lost.wait())
        turn, late_s = LateTurn(self._clock), 0.0
        try:
            while not asking.done():
                if lost.done():
                    raise WorkerLost("nobody answers there any more")
                if self._clock() >= until_s and not turn.spares():
                    raise self._silent()
                wait_s = max(MIN_WAIT_S, min(look_s, until_s - self._clock()))
                turn.due_in(wait_s)
                await asyncio.wait((asking, lost), timeout=wait_s, return_when=FIRST_COMPLETED)
                late_s = max(late_s, turn.late_s)
                self._server.silence.forgive(turn.late_s)
            answer = asking.result()
            self._server.silence.broken(self._clock())
            return answer, self._clock() - late_s
        finally:
            await cancel((asking, lost))

    @property
    def _look_s(self) -> float:
        return max(MIN_LOOK_S, self._server.address.lease_s / LOOKS_PER_LEASE)

    def _silent(self) -> SplitserveError:
        why = "it was silent for half of the time to the request's first token"
        silent_s = self._server.silence.so_far_s(self._clock())
        if silent_s < BLAMED_AFTER_S:
            return NotReady(why)
        return WorkerLost(f"{why}, and to everybody for {silent_s:.0f} s")

    def _note_failed(self, why: str, *, failed: bool) -> None:
        self.has_failed = failed
        _log.warning(
            "a vLLM prefill server has not computed a prompt; the decode server does",
            worker_id=self._server.name,
            reason=why,
        )
