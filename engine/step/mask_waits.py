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

    __slots__ = ("value",)
    _KEPT = 0.99

    def __init__(self) -> None:
        self.value = 1.0
        """As nothing is known of a beginning: one is looked for."""

    def note(self, *, is_forced: bool) -> None:
        """Of one more mask."""
        self.value = self._KEPT * self.value + (1.0 - self._KEPT) * is_forced
