"""A line between the ranks of a reading group, turned by hand."""

from __future__ import annotations

from collections import deque


class Line:
    """A RankLine to ranks in the same process; words wait until a rank is turned."""

    def __init__(self, world_size: int) -> None:
        self.told: list[deque[bytes]] = [deque() for _ in range(world_size - 1)]
        self.said: list[tuple[int, bytes]] = []

    def tell(self, body: bytes) -> None:
        for words in self.told:
            words.append(body)

    def hear(self) -> list[tuple[int, bytes]]:
        said, self.said = self.said, []
        return said
