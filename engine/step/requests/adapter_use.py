"""A request's adapter: asked for, then in a slot until the request ends, or not to be had."""

from __future__ import annotations

from collections.abc import Callable

from cluster.errors import SplitserveError


class AdapterUse:
    """Of one request. Its owner is engine/step/adapting.py."""

    __slots__ = ("_on_leave", "digest", "error", "owner", "slot")

    def __init__(
        self, digest: str, on_leave: Callable[[AdapterUse], None], owner: bytes = b""
    ) -> None:
        self.digest, self.owner = digest, owner
        self.slot: int | None = None
        """None: it has none, not yet or not any more."""
        self.error: SplitserveError | None = None
        """Why it will never have one."""
        self._on_leave = on_leave

    def leave(self) -> None:
        """The request is over. Once."""
        self._on_leave(self)
