"""One line to the other ranks for two: a letter says whose word it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ranks.line import RankLine

EXPORT = b"e"
INTAKE = b"i"


class SharedLine:
    """A RankLine whose words are one part's. What is heard is the intake's: no exporter speaks."""

    def __init__(self, line: RankLine, letter: bytes) -> None:
        self._line, self._letter = line, letter

    @property
    def greetings(self) -> Mapping[int, bytes]:
        """See RankLine."""
        return self._line.greetings

    def tell(self, body: bytes) -> None:
        """See RankLine."""
        self._line.tell(self._letter + body)

    def gather(self, rows: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        """See RankLine."""
        return self._line.gather(rows, widths)

    def hear(self) -> list[tuple[int, bytes]]:
        """See RankLine."""
        return self._line.hear()
