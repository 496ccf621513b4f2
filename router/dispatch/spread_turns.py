"""That who comes finds a turn soon, though one tenant has all of them.

    one tenant has every turn, and wants the last free one
      |- nobody else has asked for a while      -> it has it
      |- another worker will want a prompt soon -> it has it
      '- else it waits until one will: a turn stays open that long, for whoever comes

Prompts that begin together end together, and who comes then waits for the whole of one. Where they
begin one after the other somebody always ends soon. Of as many workers as W that happens by itself
every T / W, T being what prompts take; a turn is held back only while the next one is farther than
CLOSE times that, so that little is lost: what ends apart goes on apart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from cluster.deadline import Clock
from router.dispatch.asked import Asked
from router.fleet.member import FleetMember
from router.tenants.priority import NUM_LEVELS

CLOSE = 1.4
"""Times the mean gap between ends. Of four workers whose ends are drawn anew each time one stands
still for 4.5 % of its time; for 2.5 % at 1.8, for 10 % at 1.0. Simulated, 10:1 and prompts of one
length, a victim's p95 was 1.61 times that of quiet without and 1.40 with it, at the same rate; with
lengths of 600 to 1400 tokens 1.33 and 1.26, and 1.5 % fewer prompts. Measured on two cores, twice:
1.69 and 1.53, 1.26 and 1.42 (`python -m benchmarks.bench_overload`). Two workers gain less: 1.83
and 1.59."""
ACTIVE_S = 10.0
"""A tenant that has not asked for so long is not expected."""


class SpreadTurns:
    """Of one router. From the event loop only; the same cost for any number of tenants."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: list[OrderedDict[str, float]] = [OrderedDict() for _ in range(NUM_LEVELS)]
        """By class: the two tenants that asked last, and when."""

    def asks(self, asked: Asked) -> None:
        """Its tenant is there."""
        last = self._last[asked.priority.level]
        last[asked.tenant] = self._clock()
        last.move_to_end(asked.tenant)
        if len(last) > 2:
            last.popitem(last=False)

    def held_back_ms(self, asked: Asked, items: Sequence[FleetMember]) -> float:
        """How long it is to leave the only free turn of these workers to others, if nothing
        changes; 0: not at all."""
        if len(items) < 2 or not self._expects_others(asked):
            return 0.0
        turns = [turn for item in items for turn in item.prompts.turns]
        if not turns or any(turn.tenant != asked.tenant for turn in turns):
            return 0.0
        free_ms = [item.prompts.free_in_ms() for item in items]
        next_ms = min((each for each in free_ms if each), default=0.0)
        if free_ms.count(0.0) != 1 or not next_ms:
            return 0.0
        own_ms = asked.need.prompt_tokens * items[free_ms.index(0.0)].load.prefill_token_ms
        mean_ms = (own_ms + sum(turn.est_ms for turn in turns)) / (1 + len(turns))
        close_ms = CLOSE * mean_ms / len(items)
        return 0.0 if own_ms <= close_ms else max(0.0, next_ms - close_ms)

    def _expects_others(self, asked: Asked) -> bool:
        """Of its class or a higher one."""
        since_s = self._clock() - ACTIVE_S
        return any(
            tenant != asked.tenant and at_s >= since_s
            for last in self._last[: asked.priority.level + 1]
            for tenant, at_s in last.items()
        )
