"""One read of several ranks' parts: all of them, or none that counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.errors import TransferFailed
from kvtransfer.transport import Read, ReadState


class JointRead:
    """A Read; see there. It is over when all of its parts are, and as good as the worst of them.

    With a `problem` some part could not be posted: it is BROKEN while another may still land.
    """

    def __init__(self, parts: Sequence[Read], problem: str = "") -> None:
        self._parts = parts
        self._problem = problem

    @property
    def error(self) -> str:
        """Of the first part that failed."""
        return self._problem or next((part.error for part in self._parts if part.error), "")

    def poll(self) -> ReadState:
        """See Read."""
        states = {part.poll() for part in self._parts}
        if all(state.is_final for state in states):
            is_good = states == {ReadState.DONE} and not self._problem
            return ReadState.DONE if is_good else ReadState.FAILED
        is_broken = ReadState.BROKEN in states or self._problem
        return ReadState.BROKEN if is_broken else ReadState.PENDING


def post_all(posts: Sequence[Callable[[], Read]]) -> Read:
    """Posts one read for each rank. Raises TransferFailed when the first cannot be posted."""
    if len(posts) == 1:
        return posts[0]()
    parts: list[Read] = []
    for post in posts:
        try:
            parts.append(post())
        except TransferFailed as error:
            if not parts:
                raise
            return JointRead(parts, error.message)
    return JointRead(parts)
