"""One request whose prompt is prefilled elsewhere: from the reservation to the last verified block.

    RESERVING --Reserved--> PULLING --all blocks verified, first token seeded--> COMPLETE
                               |  ^      or the first token was the last one
                               |  '-- the source failed, or fell silent: the next one, from the
                               |      first bad block
                               '-- no source is left, no read is under way --> LOCAL
    from every state, when the request ends: CANCELLED

After PrefillLocally the engine computes the missing KV and goes on behind the seeded token.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from cluster.errors import (
    DeadlineExceeded,
    NoProgress,
    SplitserveError,
    WorkerLost,
    status_of,
)
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from cluster.process.own_lateness import SeenTimeout
from cluster.world import World
from decode_worker.handoff_plan import HandoffPlan
from decode_worker.prefill_source import PrefillSource
from decode_worker.remote_prompt import RemotePrompt
from decode_worker.source_patience import SourcePatience
from decode_worker.stage_times import StageTimes
from engine.contract.messages import Fetched, Reserved
from worker.exchange.prefill_peers import PrefillPeer, PrefillPeers
from worker.exchange.prefill_target import PrefillTarget

_log = get_logger("decode_worker.handoff")


class HandoffState(enum.StrEnum):
    """Where a handoff is, and how it ended."""

    RESERVING = "reserving"
    PULLING = "pulling"
    COMPLETE = "complete"
    LOCAL = "local"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffTools:
    """What a handoff works with. `on_source` is called for every source that was tried: with
    None, or with why it was given up."""

    peers: PrefillPeers
    times: StageTimes
    world: World
    on_source: Callable[[WorkerKey, SplitserveError | None], None]


class Handoff:
    """`run` is one task per request; the engine's events come in by `reserved` and `fetched`.

    Cancelling the task closes the prefill stream, which is the release of the blocks there.
    """

    def __init__(self, plan: HandoffPlan, prompt: RemotePrompt, tools: HandoffTools) -> None:
        self._plan = plan
        self._prompt = prompt
        self._tools = tools
        self._source: PrefillSource | None = None
        self.state = HandoffState.RESERVING
        self.num_failures = 0

    @property
    def is_reading(self) -> bool:
        """True while the intake has not answered every read."""
        return self._prompt.is_reading

    def reserved(self, event: Reserved) -> None:
        """The engine has blocks for the prompt."""
        self._prompt.reserved(event)

    def fetched(self, event: Fetched) -> None:
        """A read is over, of the current source or of an earlier one."""
        self._prompt.answered(event)
        if self._source is not None:
            self._source.fetched(event)

    async def run(self) -> None:
        """Returns once the engine can go on without this handoff."""
        try:
            await self._prompt.wait_reserved()
            self.state = HandoffState.PULLING
            await self._try_sources()
            if not self._prompt.is_complete:
                await self._prompt.all_reads_answered()
            self._conclude()
        except asyncio.CancelledError:
            self.state = HandoffState.CANCELLED
            raise

    @property
    def _has_enough(self) -> bool:
        prompt = self._prompt
        return prompt.is_over or (prompt.has_all_blocks and not prompt.lacks_scores)

    async def _try_sources(self) -> None:
        for at, target in enumerate(self._plan.targets):
            if self._has_enough:
                return  # nothing to read: at most a token is left to compute
            limit_s = self._plan.patience_s(len(self._plan.targets) - at)
            patience = SourcePatience(limit_s, clock=self._tools.world.clock)
            try:
                await self._pull(target, patience)
            except SplitserveError as error:
                if self._prompt.is_complete:
                    return  # a stream that breaks after the last block hurts nobody
                self._give_up(target.key, error, patience)
            else:
                self._tools.on_source(target.key, None)

    def _conclude(self) -> None:
        """An engine whose rules, after all, let a choice go on behind a last token computes the KV
        itself; the request of any other has ended with that token, and is not touched."""
        if self._prompt.is_complete:
            self.state = HandoffState.COMPLETE
            return
        if not self._prompt.is_over:
            self.state = HandoffState.LOCAL
            self._tools.times.source_begins()
            _log.warning(
                "no prefill worker delivered the prompt; the rest is computed here",
                verified_blocks=self._prompt.first_unverified,
            )
        self._prompt.compute_here()

    async def _pull(self, target: PrefillTarget, patience: SourcePatience) -> None:
        """Returns when the prompt is complete. Raises why this source is given up."""
        peer = await self._connect(target, patience.limit_s)
        if self._plan.deadline.has_passed:
            raise DeadlineExceeded("the request's deadline passed before its prompt was prefilled")
        self._tools.times.source_begins()
        patience.begin()
        self._source = PrefillSource(
            peer, self._plan, self._prompt, patience, sleep=self._tools.world.sleep
        )
        trace = self._plan.trace
        try:
            with nullcontext() if trace is None else trace.asking(target.key.worker_id):
                await self._source.pull()
        finally:
            self._source = None

    async def _connect(self, target: PrefillTarget, patience_s: float) -> PrefillPeer:
        try:
            async with SeenTimeout(patience_s, self._tools.world.clock):
                return await self._tools.peers.connect(target)
        except TimeoutError:
            raise NoProgress(
                f"{target.key.worker_id} did not answer the handshake within {patience_s:.1f} s"
            ) from None

    def _give_up(self, source: WorkerKey, error: SplitserveError, patience: SourcePatience) -> None:
        """A process that is lost is forgotten; one that is silent may have its reasons, and reads
        of other requests from it under way: only this request's are ended."""
        self.num_failures += 1
        self._prompt.withdraw_offers(source.incarnation)
        if isinstance(error, WorkerLost):
            self._tools.peers.forget(source)
        self._tools.on_source(source, error)
        _log.warning(
            "handoff failed; the prompt is computed elsewhere",
            prefill_worker=source.worker_id,
            code=status_of(error).code,
            error=error.message,
            waited_s=round(patience.waited_s, 2),
            stage=patience.stage,
            progress_words=patience.num_progress,
            verified_blocks=self._prompt.first_unverified,
            num_blocks=self._prompt.num_blocks,
        )
