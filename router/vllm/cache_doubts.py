"""Whether a decode server's cache can be believed after a read of which nothing was relayed.

left within a third of the lease -> believed
left later, within the lease -----> the prefill server's counter is asked, beside requests
left after it, or read late ------> doubted
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.errors import SplitserveError
from cluster.process.background import Background
from router.vllm.kept_blocks import Belief, KeptBlocks
from router.vllm.server import VllmServer


class CacheDoubts:
    """Of one decode server, for all requests of its link. From the event loop only."""

    def __init__(
        self, server: VllmServer, background: Background, on_doubt: Callable[[], None]
    ) -> None:
        """`background` runs what asks a counter. `on_doubt`: see LinkEvents."""
        self._server = server
        self._background = background
        self._on_doubt = on_doubt
        self._is_closed = False

    def close(self) -> None:
        """No counter is asked any more: what would need one is doubted."""
        self._is_closed = True

    def doubt(self) -> None:
        """From now on nothing is used that the server has cached by now."""
        self._server.doubt_cache()
        self._on_doubt()

    def weigh(self, kept: KeptBlocks, prefill: VllmServer) -> None:
        """Who asked for the blocks has gone: whether they were read, and when, nobody knows."""
        belief = kept.belief
        if belief is Belief.TOO_LATE or (belief is Belief.DOUBTFUL and self._is_closed):
            self.doubt()
        elif belief is Belief.DOUBTFUL:
            self._background.once(f"asks {prefill.name} for late reads", self._ask(kept, prefill))

    async def _ask(self, kept: KeptBlocks, prefill: VllmServer) -> None:
        if kept.was_late(await late_reads_of(prefill, kept)):
            self.doubt()


async def late_reads_of(server: VllmServer, kept: KeptBlocks) -> int | None:
    """By now; None where it cannot be asked, or another process counts there, from nothing."""
    try:
        numbers = await server.look()
    except SplitserveError:
        return None
    return numbers.late_reads if numbers.started == kept.started else None
