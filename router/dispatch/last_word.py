"""A request's usage and timing when it is over, over all of its workers."""

from __future__ import annotations

import msgspec

from cluster.generation import Timing, Usage
from router.dispatch.journey import Journey


def summed_up(journey: Journey, told: tuple[Usage, Timing]) -> tuple[Usage, Timing]:
    """The last worker's word, with what the first tokens took where they came, and without the
    tokens that do not count."""
    usage, timing = journey.choices.summed_up(told)
    return (usage, timing) if not journey.has_moved else _with_first_cost(journey, usage, timing)


def summed_up_alone(journey: Journey) -> tuple[Usage, Timing]:
    """The same where that worker's word will not come."""
    usage = Usage(len(journey.request.token_ids), journey.choices.num_tokens, cached_tokens=0)
    timing = Timing(decode_worker=journey.decision.route.decode.worker_id)
    return _with_first_cost(journey, usage, timing)


def _with_first_cost(journey: Journey, usage: Usage, timing: Timing) -> tuple[Usage, Timing]:
    """Cached tokens are as the client was told, or would have been, when the answer began."""
    cost, first_part = journey.cost, journey.first_sent.first_part
    if cost is None:
        return usage, timing
    num_cached = cost.cached_tokens if first_part is None else first_part.cached_tokens
    return msgspec.structs.replace(usage, cached_tokens=num_cached), cost.put_first(timing)
