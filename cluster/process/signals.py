"""SIGTERM once: finish what runs. Once more, SIGINT, or the loss of what is needed: stop now."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cluster.process.background import Loss

EndNotice = Callable[[str], None]
"""Called with the cause as a process begins to end; see EndLimit, which is one."""


def no_limit(cause: str) -> None:
    """The EndNotice of what shares its process with others."""


class StopRequests:
    """What the operator wants; both events stay set. All calls from the event loop.

    `loss` is why the process ends by itself; None when an operator asked for it.
    """

    def __init__(self, on_end: EndNotice = no_limit) -> None:
        """`on_end` may be called more than once; the first time counts."""
        self._on_end = on_end
        self.loss: Loss | None = None
        self.drain = asyncio.Event()
        self.stop_now = asyncio.Event()

    def on_sigterm(self) -> None:
        """The first asks for a drain, the second for an end."""
        if self.drain.is_set():
            self.stop_now.set()
        self.drain.set()

    def on_sigint(self) -> None:
        """An end without a drain."""
        self.drain.set()
        self.stop_now.set()

    def on_close(self) -> None:
        """No request is waited for any more: what is left is to close what was opened."""
        self._on_end("it was to stop")

    def on_loss(self, loss: Loss) -> None:
        """Something needed has ended: an end without a drain, with a cause; the first one counts.
        The `on_loss` of a Background."""
        self._on_end(str(loss))
        self.loss = self.loss or loss
        self.on_sigint()


@contextmanager
def listen_for_signals(requests: StopRequests) -> Iterator[None]:
    """Installs the handlers on the running loop; takes them away afterwards."""
    loop = asyncio.get_running_loop()
    handlers: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGTERM: requests.on_sigterm,
        signal.SIGINT: requests.on_sigint,
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
