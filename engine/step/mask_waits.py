"""How long a step waits for the masks of answers that follow a grammar."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MaskWaits:
    """How long the engine waits for masks, in seconds: all rows of a step together."""

    plan_s: float = 0.0005
    """Before a plan: for tokens that are forced, which it may draft."""
    step_s: float = 0.005
    """In all of a step, that included. Rows whose masks are not there then wait a step."""
    lone_s: float = 0.05
    """Where no row could go on meanwhile."""
