"""How long a step waits for the masks of answers that follow a grammar."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MaskWaits:
    """How long the engine waits for masks, in seconds: all rows of a step together."""

    plan_s: float = 0.0005
    """Before a plan: for tokens that are forced, which it may draft."""
    least_forced: float = 0.02
    """... where so large a part of the last masks had one, for each mask that is waited for: the
    more streams, the longer their masks take (sixteen 0.2 ms, which the forward pass hides unless
    they are waited for), and the less of a step a token is."""
    step_s: float = 0.005
    """In all of a step, that included. Rows whose masks are not there then wait a step."""
    lone_s: float = 0.05
    """Where no row could go on meanwhile."""


class ForcedShare:
    """Which part of an engine's last masks had one token alone."""

    SAMPLED_EACH = 4
    """Steps: to count the bits of one mask takes 0.05 ms of one where caches are cold."""
    __slots__ = ("_num_asked", "value")
    _KEPT = 0.99

    def __init__(self) -> None:
        self._num_asked = 0
        self.value = 1.0
        """As nothing is known of a beginning: one is looked for."""

    def is_sampled(self) -> bool:
        """To be asked once in each step that looks for no forced tokens: whether one of its masks
        is to tell, for SAMPLED_EACH of them."""
        self._num_asked += 1
        return self._num_asked % self.SAMPLED_EACH == 0

    def note(self, *, is_forced: bool) -> None:
        """Of one more mask."""
        self.value = self._KEPT * self.value + (1.0 - self._KEPT) * is_forced

    def note_sampled(self, only_token: int | None) -> None:
        """Of one that tells for all of them, and has one token alone, or more."""
        for _ in range(self.SAMPLED_EACH):
            self.note(is_forced=only_token is not None)
