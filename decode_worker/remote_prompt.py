"""What this worker has of a prompt that is computed elsewhere: its blocks, and its first tokens.

    reserved -> offer, seed, answered, in any order -> is_complete
                     '- a source that is given up takes its offers along; what is verified stays

The first tokens are passed on once and never change: a second source's are ignored. So are scores
of the prompt's own tokens, all of which come before them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cluster.block_span import BlockSpan
from decode_worker.remote_scores import RemoteScores
from decode_worker.stage_times import SourceTimes, StageTimes
from engine.contract.commands import (
    Abandon,
    ChoiceToken,
    Command,
    Fetch,
    PrefillLocally,
    Seed,
)
from engine.contract.messages import Fetched, Reserved
from worker.exchange.block_ledger import BlockLedger
from worker.exchange.source_blocks import BlockSizes, SourceBlocks


class RemotePrompt:
    """Tells the engine what to read and what was sampled. All calls from the event loop."""

    def __init__(
        self,
        engine_id: str,
        send: Callable[[Command], None],
        times: StageTimes,
        scores: RemoteScores | None = None,
    ) -> None:
        """`scores`: None: nobody asked for any."""
        self.scores = scores
        self._engine_id = engine_id
        self._send = send
        self._times = times
        self._reserved: asyncio.Future[Reserved] = asyncio.get_running_loop().create_future()
        self._ledger = BlockLedger(num_blocks=0, first_block=0)
        self._quiet = asyncio.Event()
        self.is_seeded = False
        """The engine knows the first tokens."""
        self.is_over = False
        """No choice goes on behind its first token: the engine ends the request by itself."""

    @property
    def num_blocks(self) -> int:
        """Of the prompt."""
        return self._ledger.num_blocks

    @property
    def first_unverified(self) -> int:
        """Index of the first block that is missing; `num_blocks` when none is."""
        return self._ledger.first_unverified

    @property
    def has_all_blocks(self) -> bool:
        """True when every block is verified."""
        return self._ledger.is_complete

    @property
    def lacks_scores(self) -> bool:
        """True while tokens of the prompt are to be scored."""
        return self.scores is not None and not self.scores.are_complete

    @property
    def is_complete(self) -> bool:
        """True when the engine has all that decoding needs."""
        return self.is_seeded and self._ledger.is_complete

    @property
    def is_reading(self) -> bool:
        """True while the intake has not answered every read."""
        return not self._ledger.is_quiet

    def reserved(self, event: Reserved) -> None:
        """The engine has blocks for the prompt."""
        if not self._reserved.done():
            self._reserved.set_result(event)

    async def wait_reserved(self) -> None:
        """Returns once blocks may be offered."""
        event = await self._reserved
        self._times.reserved()
        self._ledger = BlockLedger(num_blocks=len(event.block_ids), first_block=event.first_block)

    def accepted(self) -> None:
        """The source's engine is at it."""
        self._times.accepted()

    def begin_source(self, sizes: BlockSizes, num_tokens: int) -> SourceBlocks:
        """What is offered from now on are blocks of another source, of this prompt."""
        if self.scores is not None:
            self.scores.begin_source()
        blocks = sizes.of_prompt(num_tokens=num_tokens, num_blocks=self.num_blocks)
        self._ledger.begin_source(blocks)
        return blocks

    def offer(self, span: BlockSpan, incarnation: str) -> None:
        """That process has these blocks. Raises TransferFailed when it makes no sense."""
        self._ledger.offer(span)
        self._times.offered()
        self.read_offered(incarnation)

    def read_offered(self, incarnation: str) -> None:
        """Starts every read that the offers of that process allow."""
        for wanted in self._ledger.take_reads():
            self._send(Fetch(self._engine_id, incarnation, wanted.span, wanted.into))

    def withdraw_offers(self, incarnation: str) -> None:
        """Their source is given up; its reads under way will be answered within about a second."""
        self._times.source_failed()
        self._ledger.forget_offers()
        if self.is_reading:
            self._send(Abandon(self._engine_id, incarnation))

    def answered(self, event: Fetched) -> None:
        """A read is over, of the current source or of an earlier one."""
        self._ledger.answer(event.first_index, event.num_blocks)
        if self._ledger.is_quiet:
            self._quiet.set()
        if self._ledger.is_complete:
            self._times.verified(event.frame_delay_ms)

    def seed(self, tokens: list[ChoiceToken], source: SourceTimes, *, is_last: bool) -> None:
        """The first tokens, once; `is_last`: no choice goes on."""
        self.is_seeded = True
        self.is_over = is_last
        self._send(Seed(self._engine_id, tokens))
        self._times.first_token(source)

    def compute_here(self) -> None:
        """The engine computes what is missing. No read may be under way."""
        num_scored = 0 if self.scores is None else self.scores.num_told
        self._send(PrefillLocally(self._engine_id, num_scored))

    async def all_reads_answered(self) -> None:
        """The engine answers every Fetch, so this ends; the request's end cancels it at worst."""
        while not self._ledger.is_quiet:
            self._quiet.clear()
            await self._quiet.wait()
