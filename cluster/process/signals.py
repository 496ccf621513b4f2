"""SIGTERM once: finish what runs. SIGTERM again, or SIGINT: stop now."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StopRequests:
    """What the operator wants; both events stay set. All calls from the event loop."""

    def __init__(self) -> None:
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
