"""How far a client has read an answer, as the id of each event says, and what it lacks of the rest.

    9f86d0...:57.12,61.0e,-     the answer; of each choice the characters and tokens that the client
                                has, `e` where it has its end, `-` where it has nothing

How tokens come together in events differs from telling to telling, and so the place is no number
of an event: characters and tokens are each in one order, the same every time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from cluster.errors import InvalidRequest
from cluster.sampling import MAX_CHOICES
from router.text.choice import TextDelta

_CHOICE = r"(?:-|[0-9]{1,9}\.[0-9]{1,9}e?)"
_EVENT_ID = re.compile(rf"([0-9a-f]{{32}}):({_CHOICE}(?:,{_CHOICE}){{0,{MAX_CHOICES - 1}}})")
MAX_EVENT_ID_CHARS = 512


@dataclass(slots=True)
class ReadChoice:
    """Of one choice, by its client."""

    num_chars: int = 0
    num_tokens: int = 0
    has_begun: bool = False
    has_ended: bool = False

    def is_ahead_of(self, told: ReadChoice) -> bool:
        """It has something that was not told."""
        has_end = self.has_ended and not told.has_ended
        return has_end or self.num_chars > told.num_chars or self.num_tokens > told.num_tokens

    def __str__(self) -> str:
        if not self.has_begun:
            return "-"
        return f"{self.num_chars}.{self.num_tokens}{'e' if self.has_ended else ''}"


class ReadersPlace:
    """Of one client, in one answer of so many choices. Every delta from the answer's first on goes
    through `rest_of`, which counts it as read."""

    def __init__(self, answer_id: str, choices: Sequence[ReadChoice]) -> None:
        self.answer_id = answer_id
        self._read = list(choices)
        self._told = [ReadChoice() for _ in choices]

    @classmethod
    def at_beginning(cls, answer_id: str, num_choices: int) -> ReadersPlace:
        """Of a client that has nothing."""
        return cls(answer_id, [ReadChoice() for _ in range(num_choices)])

    @classmethod
    def parse(cls, event_id: str) -> ReadersPlace:
        """As `event_id` says. Raises InvalidRequest for what none of our events had."""
        found = _found(event_id)
        if found is None:
            raise InvalidRequest(
                "Last-Event-ID is no id of an event of ours; send the last one as it came",
                param="last_event_id",
            )
        return cls(found[1], [_parsed(each) for each in found[2].split(",")])

    @property
    def num_choices(self) -> int:
        """Of the answer."""
        return len(self._read)

    @property
    def begun_choices(self) -> set[int]:
        """Of which the client has something."""
        return {index for index, each in enumerate(self._read) if each.has_begun}

    @property
    def is_behind(self) -> bool:
        """The client has something, of an earlier connection, that `rest_of` has not met yet."""
        pairs = zip(self._read, self._told, strict=True)
        return any(read.is_ahead_of(told) for read, told in pairs)

    @property
    def event_id(self) -> str:
        """After what was counted as read."""
        return f"{self.answer_id}:{','.join(map(str, self._read))}"

    def rest_of(self, delta: TextDelta) -> TextDelta | None:
        """What the client lacks of it; None: nothing."""
        read, told = self._read[delta.choice], self._told[delta.choice]
        text = delta.text[max(0, read.num_chars - told.num_chars) :]
        tokens = delta.tokens[max(0, read.num_tokens - told.num_tokens) :]
        told.num_chars += len(delta.text)
        told.num_tokens += len(delta.tokens)
        told.has_ended = told.has_ended or delta.finish_reason is not None
        is_end = delta.finish_reason is not None and not read.has_ended
        if read.has_begun and not (text or tokens or is_end):
            return None
        read.num_chars = max(read.num_chars, told.num_chars)
        read.num_tokens = max(read.num_tokens, told.num_tokens)
        read.has_begun, read.has_ended = True, read.has_ended or is_end
        return msgspec.structs.replace(delta, text=text, tokens=tokens)


def is_of_ours(event_id: str) -> bool:
    """An event of ours may have had it. Other servers' streams have events too."""
    return _found(event_id) is not None


def _found(event_id: str) -> re.Match[str] | None:
    return _EVENT_ID.fullmatch(event_id) if len(event_id) <= MAX_EVENT_ID_CHARS else None


def _parsed(choice: str) -> ReadChoice:
    if choice == "-":
        return ReadChoice()
    num_chars, _, num_tokens = choice.removesuffix("e").partition(".")
    return ReadChoice(int(num_chars), int(num_tokens), True, choice.endswith("e"))
