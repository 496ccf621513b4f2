"""The last messages of a publisher, for those who missed some; bounded by their size."""

from __future__ import annotations

from collections import deque

from cluster.kv_events.replay import ReplayMessage

MAX_MESSAGES = 2_500
"""Some 0.9 kB each: 3 minutes of a worker with six requests a second, half a minute of one that
fills a block in each step. 10,000 took half an hour to fill, and looked like a leak: 6 % of the
process (`python -m benchmarks.bench_soak`)."""
MAX_BYTES = 2 * 1024 * 1024
"""A decode worker at 20 requests a second fills it in half a minute, a prefill worker of the bench
above in eight; one prompt of 100k tokens takes 0.5 MB. Whoever has missed more takes a snapshot."""


class ReplayBuffer:
    """Numbered messages, oldest first; the oldest go when there are too many or too large."""

    def __init__(self, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self._messages: deque[ReplayMessage] = deque()
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Of all payloads together."""
        return self._num_bytes

    def add(self, number: int, payload: bytes) -> None:
        """The newest; it is kept however large it is."""
        self._messages.append((number, payload))
        self._num_bytes += len(payload)
        while len(self._messages) > 1 and self._is_over():
            self._num_bytes -= len(self._messages.popleft()[1])

    def since(self, number: int) -> list[ReplayMessage]:
        """Those that are still here, from a number on."""
        return [message for message in self._messages if message[0] >= number]

    def _is_over(self) -> bool:
        return len(self._messages) > self._max_messages or self._num_bytes > self._max_bytes
