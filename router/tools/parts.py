"""What an answer's text turns out to be, in the order in which it came.

Thought* -> Content | CallBegun -> CallArguments* -> CallEnded | CallBroken  ...
"""

from __future__ import annotations

import msgspec


class Thought(msgspec.Struct, frozen=True, gc=False):
    """Text of the model's reasoning."""

    text: str


class Content(msgspec.Struct, frozen=True, gc=False):
    """Text for the reader."""

    text: str


class CallBegun(msgspec.Struct, frozen=True, gc=False):
    """A call of a tool; `index` counts an answer's calls from 0."""

    index: int
    name: str


class CallArguments(msgspec.Struct, frozen=True, gc=False):
    """More of a call's arguments: together the text of a JSON object."""

    index: int
    text: str


class CallEnded(msgspec.Struct, frozen=True, gc=False):
    """Its arguments are whole."""

    index: int


class CallBroken(msgspec.Struct, frozen=True, gc=False):
    """What was begun did not become a call."""

    index: int
    raw: str
    """All that the model wrote of it."""
    rest: str
    """What of that came after the arguments that were told."""


AnswerPart = Thought | Content | CallBegun | CallArguments | CallEnded | CallBroken


def add_content(parts: list[AnswerPart], text: str) -> None:
    """More of it, at the end of `parts`."""
    if not text:
        return
    if parts and isinstance(last := parts[-1], Content):
        parts[-1] = Content(last.text + text)
    else:
        parts.append(Content(text))
