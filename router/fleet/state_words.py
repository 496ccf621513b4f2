"""What operators are told of a worker: one word, and what it is held for behind it where something
else is wrong."""

from __future__ import annotations

from cluster.membership.hold import HoldKind, WorkerHold
from router.fleet.cooldown import Cooldown


def health_word(cooldown: Cooldown, *, is_cut_off: bool, is_silent: bool) -> str:
    """Of one that is not held, and is not to end."""
    if is_cut_off:
        return "connecting"
    if is_silent:
        return "silent"
    return "ready" if cooldown.is_trusted else cooldown.trust.value


def held_word(health: str, hold: WorkerHold, *, is_drained: bool) -> str:
    """Of one that is held; one that its requests leave has "drained" when the last of them has
    left."""
    held = "drained" if is_drained else "draining"
    held = "cordoned" if hold.kind is HoldKind.CORDON else held
    return held if health == "ready" else f"{health},{held}"
