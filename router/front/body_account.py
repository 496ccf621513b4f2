"""The bytes of large bodies that a router holds at once, before it knows what they ask for.

    open -> grow_to* -> closed        a body arrives, is read by a text worker, and is let go

Small bodies do not count: their number is bounded with the connections, and no crowd of large ones
keeps them out.
"""

from __future__ import annotations

from types import TracebackType

from cluster.errors import NotReady
from router.front.text_work import LARGE_BODY_BYTES

RETRY_AFTER_S = 1.0


class BodyAccount:
    """One per process, for HTTP and gRPC. All calls from the event loop's thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.num_bytes = 0
        """Held now."""

    def open(self) -> HeldBody:
        """For one body; close it by leaving its `with`."""
        return HeldBody(self)

    def take(self, num_bytes: int) -> None:
        """Raises NotReady, and takes nothing, when there is no room."""
        if self.num_bytes + num_bytes > self._max_bytes:
            raise NotReady(
                f"bodies of {self._max_bytes} bytes are being received; try again later",
                retry_after_s=RETRY_AFTER_S,
            )
        self.num_bytes += num_bytes

    def give_back(self, num_bytes: int) -> None:
        """What `take` took."""
        self.num_bytes -= num_bytes


class HeldBody:
    """One body's part of the account."""

    def __init__(self, account: BodyAccount) -> None:
        self._account = account
        self._num_bytes = 0

    def grow_to(self, num_bytes: int) -> None:
        """So many bytes have arrived. Raises NotReady when there is no room for them."""
        if num_bytes > LARGE_BODY_BYTES:
            self._account.take(num_bytes - self._num_bytes)
            self._num_bytes = num_bytes

    def close(self) -> None:
        """Its bytes are let go. Idempotent."""
        self._account.give_back(self._num_bytes)
        self._num_bytes = 0

    def __enter__(self) -> HeldBody:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
