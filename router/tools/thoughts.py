"""How models mark their reasoning, and whether a prompt's end has begun it already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from router.tools.piece_reader import Markers, PieceReader, Steps


@dataclass(frozen=True, slots=True)
class ThoughtFormat:
    """The words before and after it."""

    begin: str
    end: str

    @property
    def words(self) -> frozenset[str]:
        """Both."""
        return frozenset((self.begin, self.end))

    def is_open_after(self, prompt_tail: str) -> bool:
        """The template has written the beginning: the answer starts inside. It is the last that a
        prompt has: further up, the word is one of the client's text."""
        return prompt_tail.rstrip().endswith(self.begin)

    def is_open_in(self, answer: str) -> bool:
        """Of one that goes on: it has begun with a thought, and not ended it."""
        return answer.lstrip().startswith(self.begin) and self.end not in answer


THOUGHT_FORMATS = (
    ThoughtFormat("<think>", "</think>"),
    ThoughtFormat("[THINK]", "[/THINK]"),
    ThoughtFormat("<seed:think>", "</seed:think>"),
)


def read_thought(
    reader: PieceReader,
    thoughts: ThoughtFormat,
    tell: Callable[[str], None],
    *,
    is_open: bool,
) -> Steps[bool]:
    """At the beginning of an answer: tells its thought, without the spaces around it, and returns
    True after its end; False where the answer does not begin with one: only spaces were read."""
    yield from reader.spaces()
    has_begun = yield from reader.continues(thoughts.begin)
    if not has_begun and not is_open:
        return False
    yield from reader.spaces()
    yield from reader.told_until(Markers([thoughts.end]), tell)
    return True
