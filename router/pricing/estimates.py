"""What the router has measured: how fast workers prefill, what a handoff costs, what links carry,
how long answers get.

Until something is measured, stated defaults hold; handoffs and links fall back to them when the
last measurement is a minute old, so that a bad minute is not believed for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from cluster.generation import EngineLoad, Timing, Usage
from cluster.identity import WorkerKey
from router.pricing.link_rates import LinkRates
from router.pricing.link_totals import LinkTotals
from router.pricing.prefill_lines import PrefillLines
from router.pricing.recent_values import RecentValues

DEFAULT_KV_BYTES_PER_S = 1e9
"""The careful end: NIXL over shared memory was measured at 3.5 to 8 GB/s."""
DEFAULT_HANDOFF_MS = 5.0
DEFAULT_COMPLETION_TOKENS = 256.0
"""Of one choice, before any answer is complete."""
_COMPLETION_STEP = 0.05
"""How far one answer moves the expected length: some twenty answers count."""
MAX_TOLD = 8
"""Values of a kind that one router tells the others."""


class Rests(msgspec.Struct, frozen=True, array_like=True):
    """What requests took beside compute and bytes, by pairs of workers and by one alone."""

    pair_ms: list[float] = []
    local_ms: list[float] = []


class Estimates:
    """Fed by finished requests and load reports; asked at every decision."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.prefill = PrefillLines()
        self.completion_tokens = DEFAULT_COMPLETION_TOKENS
        """How long one choice gets, as far as recent answers tell."""
        self._rest_pair = RecentValues(clock)
        self._rest_local = RecentValues(clock)
        self._fleet_link = RecentValues(clock)
        self.links = LinkRates(clock)
        self.link_totals = LinkTotals()

    @property
    def handoff_ms(self) -> float:
        """What a pair takes beside compute and bytes, over what a local request takes."""
        pair = self._rest_pair.median()
        if pair is None:
            return DEFAULT_HANDOFF_MS
        return max(0.0, pair - (self._rest_local.median() or 0.0))

    def rests(self) -> Rests:
        """What this router has measured lately, for the others of its fleet."""
        pair, local = self._rest_pair.own(), self._rest_local.own()
        return Rests(pair[-MAX_TOLD:], local[-MAX_TOLD:])

    def hear(self, told: Sequence[Rests]) -> None:
        """What the others have: of many routers each measures little. All of it, each time."""
        self._rest_pair.told = [value for rests in told for value in rests.pair_ms]
        self._rest_local.told = [value for rests in told for value in rests.local_ms]

    @property
    def kv_bytes_per_s(self) -> float | None:
        """Of all links; None before the first transfer."""
        return self._fleet_link.ratio()

    def heard(self, worker: WorkerKey, load: EngineLoad) -> None:
        """A worker's report."""
        self.prefill.heard(worker, load.prefill_token_ms, load.prefill_pair_ms)

    def forget(self, worker: WorkerKey) -> None:
        """The worker is gone."""
        self.prefill.forget(worker)
        self.links.forget(worker)
        self.link_totals.forget(worker)

    def answered(self, usage: Usage, *, num_choices: int = 1) -> None:
        """How long an answer was, of whose times nothing is known."""
        per_choice = usage.completion_tokens / num_choices
        self.completion_tokens += _COMPLETION_STEP * (per_choice - self.completion_tokens)

    def finished(
        self,
        usage: Usage,
        timing: Timing,
        *,
        decode: WorkerKey,
        prefill: WorkerKey | None,
        num_choices: int = 1,
    ) -> None:
        """What a request that succeeded tells; `prefill` is the worker that computed, or None."""
        self.prefill.add(
            prefill or decode,
            usage.prompt_tokens - usage.cached_tokens,
            timing.prefill_ms,
            context=usage.cached_tokens,
        )
        if timing.prefill_ms > 0:  # else the prompt's time, which nobody told, is in the rest
            # bytes have a term of their own: what is left of the delay is messages
            rest = self._rest_pair if prefill else self._rest_local
            rest.add(timing.decode_ms + max(0.0, timing.kv_ms - timing.kv_transfer_ms))
        if usage.completion_tokens:  # else it was pooled
            self.answered(usage, num_choices=num_choices)
        if prefill and timing.kv_bytes and timing.kv_transfer_ms > 0:
            took_s = timing.kv_transfer_ms / 1000
            self._fleet_link.add(timing.kv_bytes, took_s)
            self.links.add((prefill, decode), timing.kv_bytes, took_s)
            self.link_totals.add((prefill, decode), timing.kv_bytes)


def link_bytes_per_s(measured: float | None, beat_bytes_per_s: float) -> float:
    """For one reader: what the router measured, else its own word if that is above the default.

    A low word is not taken: it may come from transfers so small that it measured their latency.
    """
    return measured or max(beat_bytes_per_s, DEFAULT_KV_BYTES_PER_S)
