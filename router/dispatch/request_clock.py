"""When a request's tokens left the router, and how its time to first token adds up."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from cluster.generation import Timing
from router.telemetry.request_course import RequestCourse


class RequestClock:
    """Stamps of one request, in seconds of one monotonic clock."""

    def __init__(
        self,
        arrived_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_gap: Callable[[float], None] = lambda gap_s: None,
        on_pause: Callable[[float], None] = lambda pause_s: None,
        course: RequestCourse | None = None,
    ) -> None:
        """`course`: where the request's stamps are kept, for whoever asks later."""
        self.course = course or RequestCourse(arrived_s)
        self._arrived_s = arrived_s
        self._clock = clock
        self._on_gap = on_gap
        self._on_pause = on_pause
        self._is_interrupted = False
        self._dispatched_s = arrived_s
        self._first_s: float | None = None
        self._last_s: dict[int, float] = {}

    @property
    def has_token(self) -> bool:
        """True once the client has been given a token."""
        return self._first_s is not None

    @property
    def last_token_s(self) -> float | None:
        """When the client was given its latest tokens; None: it has none."""
        return max(self._last_s.values(), default=None)

    @property
    def since_dispatch_ms(self) -> float:
        """Since the router's own queueing was over."""
        return (self._clock() - self._dispatched_s) * 1000

    def dispatched(self) -> None:
        """The router's own queueing is over; the last call before the first token counts."""
        if self._first_s is None:
            self._dispatched_s = self._clock()

    def interrupted(self) -> None:
        """Another worker goes on: `on_pause` hears the time between the tokens of the two."""
        self._is_interrupted = bool(self._last_s)

    def tokens(self, choice: int, num_tokens: int) -> None:
        """Tokens of a choice are about to leave; `on_gap` hears the time since its last ones."""
        if not num_tokens:
            return
        now_s = self._clock()
        if self._first_s is None:
            self._first_s = self.course.first_token_s = now_s
        if self._is_interrupted:
            self._is_interrupted = False
            self._on_pause(now_s - max(self._last_s.values()))
        if (before_s := self._last_s.get(choice)) is not None:
            self._on_gap(now_s - before_s)
        self._last_s[choice] = now_s

    def complete(self, worker: Timing, *, longest_tokens: int) -> Timing:
        """The worker's part with ours: `ttft = queue + prefill + kv + decode`, exactly.

        `longest_tokens`: how many tokens the longest choice got.
        """
        first_s = self._clock() if self._first_s is None else self._first_s
        ttft_ms = max(0.0, (first_s - self._arrived_s) * 1000)
        own_queue_ms = max(0.0, (self._dispatched_s - self._arrived_s) * 1000)
        queue_ms, prefill_ms, kv_ms = _fit_into(
            ttft_ms, own_queue_ms + worker.queue_ms, worker.prefill_ms, worker.kv_ms
        )
        return msgspec.structs.replace(
            worker,
            ttft_ms=ttft_ms,
            queue_ms=queue_ms,
            prefill_ms=prefill_ms,
            kv_ms=kv_ms,
            decode_ms=ttft_ms - queue_ms - prefill_ms - kv_ms,
            itl_ms=self._mean_gap_ms(first_s, longest_tokens - 1),
        )

    def _mean_gap_ms(self, first_s: float, num_gaps: int) -> float:
        last_s = max(self._last_s.values(), default=first_s)
        return (last_s - first_s) * 1000 / num_gaps if num_gaps > 0 else 0.0


def _fit_into(total_ms: float, *parts_ms: float) -> list[float]:
    """The parts, cut from the first on so that they never exceed the total.

    Two processes measure them; by a clock's tick they may add up to more.
    """
    fitted = []
    for part_ms in parts_ms:
        fitted.append(min(max(0.0, part_ms), total_ms))
        total_ms -= fitted[-1]
    return fitted
