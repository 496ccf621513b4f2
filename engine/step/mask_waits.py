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
    step_share: float = 0.25
    """In all of a step, that included, of what one takes as measured, such waits among it: so it is
    longer by a third at most. Rows whose masks are not there then wait a step."""
    step_s: float = 0.005
    """... where none was measured yet."""
    lone_s: float = 0.05
    """Where no row could go on meanwhile."""

    def most_s(self, step_s: float) -> float:
        """Of a step that takes so long; 0: nobody knows."""
        return self.step_share * step_s if step_s else self.step_s


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
