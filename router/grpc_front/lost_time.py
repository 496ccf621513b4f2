"""Which addresses held places for messages that never came: they are trusted less for a while.

    trusted --lose, over what is forgiven--> doubted --> trusted: some time after the last loss, or
                                                         once messages of the address that came
                                                         whole took as long as was lost

gRPC shows no progress inside a message. What is known of a sender is how long it held places, and
whether anything came of it. At the address of a proxy one client that drips is made good for by
all the others; who sends a small message between two that drip makes nothing good.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTimeLimits:
    """Whom to doubt."""

    forgiven_s: float
    """Of lost time, such as that of an upload whose client left."""
    doubt_s: float
    """From the last loss on."""
    max_addresses: int = 4096
    """Over it, whose last loss is the oldest is trusted again."""


@dataclass(slots=True)
class _Loss:
    lost_s: float = 0.0
    until_s: float = 0.0


class LostTime:
    """All times are those of one clock."""

    def __init__(self, limits: LostTimeLimits) -> None:
        self._limits = limits
        self._losses: OrderedDict[str, _Loss] = OrderedDict()

    def lose(self, address: str, took_s: float, now_s: float) -> None:
        """A place was held for so long, and no message came."""
        loss = self._recent(address, now_s) or _Loss()
        loss.lost_s += took_s
        loss.until_s = now_s + self._limits.doubt_s
        self._losses[address] = loss
        self._losses.move_to_end(address)
        if len(self._losses) > self._limits.max_addresses:
            self._losses.popitem(last=False)

    def make_good(self, address: str, took_s: float, now_s: float) -> None:
        """A place was held for so long, and a message came whole."""
        loss = self._recent(address, now_s)
        if loss is None:
            return
        loss.lost_s -= took_s
        if loss.lost_s <= 0:
            del self._losses[address]

    def is_doubted(self, address: str, now_s: float) -> bool:
        """Whether it lost more than it made good."""
        loss = self._recent(address, now_s)
        return loss is not None and loss.lost_s > self._limits.forgiven_s

    def _recent(self, address: str, now_s: float) -> _Loss | None:
        loss = self._losses.get(address)
        if loss is None or now_s < loss.until_s:
            return loss
        del self._losses[address]
        return None
