"""Which connections have sent their messages whole so far: a worker that beats is no stranger."""

from __future__ import annotations

from collections import OrderedDict

from router.front.caller import Caller


class HeardBefore:
    """Connections whose last message came whole, for their next one. Over the limit, who was
    silent for longest is forgotten."""

    def __init__(self, max_connections: int) -> None:
        self._max_connections = max_connections
        self._connections: OrderedDict[str, None] = OrderedDict()

    def note(self, caller: Caller) -> None:
        """A message of it came whole."""
        self._connections[caller.connection] = None
        self._connections.move_to_end(caller.connection)
        if len(self._connections) > self._max_connections:
            self._connections.popitem(last=False)

    def spend(self, caller: Caller) -> bool:
        """Whether it is known as another message of it begins, which has to come whole before it
        is known again."""
        known = caller.connection in self._connections
        self._connections.pop(caller.connection, None)
        return known
