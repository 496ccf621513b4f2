"""What parts of a layer have beside their plain form when a native program can hold them.

A part takes part by having these methods (`kernels/cpu/tape.py` is what they write on); one that
lacks them, or raises NoNativeForm, sends the whole model operation by operation.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from engine.model.layers.attention import Attention
from engine.model.layers.feed_forward import FeedForward
from kernels.cpu.tape import NoNativeForm, Rows, Tape


@runtime_checkable
class RecordedAttention(Protocol):
    """An Attention that can be operations of a program."""

    def record_attend(self, tape: Tape, x: Rows, layer: int) -> Rows:
        """What `attend` does, of the pool's layer of this index. Raises NoNativeForm."""

    def record_project(self, tape: Tape, attended: Rows) -> Rows:
        """What `project` does. Raises NoNativeForm."""


@runtime_checkable
class RecordedFeedForward(Protocol):
    """A FeedForward that can be operations of a program."""

    def record(self, tape: Tape, x: Rows) -> Rows:
        """What a call does. Raises NoNativeForm."""


def recorded_attention(attention: Attention) -> RecordedAttention:
    """Raises NoNativeForm."""
    if not isinstance(attention, RecordedAttention):
        raise NoNativeForm(type(attention).__name__)
    return attention


def recorded_feed_forward(feed_forward: FeedForward) -> RecordedFeedForward:
    """Raises NoNativeForm."""
    if not isinstance(feed_forward, RecordedFeedForward):
        raise NoNativeForm(type(feed_forward).__name__)
    return feed_forward
