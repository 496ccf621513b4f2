"""A request for an adapter is computed by what its name stands for when it is sent.

It may have stood in a line for longer than workers keep a version whose name they have given away.
Decode workers and prefill workers that pool load a version each at its own time: it counts what
those have that could answer.
"""

from __future__ import annotations

from functools import partial

import msgspec

from router.dispatch.journey import Journey
from router.dispatch.stream import RoutedRequest
from router.fleet.fleet import Fleet
from router.fleet.fleet_adapters import FleetAdapters


async def in_newest_version(
    journey: Journey, fleet: Fleet, adapters: FleetAdapters
) -> RoutedRequest:
    """The request of the journey as it is to be sent. One that has begun keeps its version; one
    whose workers have all left waits a short grace for one that has it."""
    request = journey.request
    if (asked := request.adapter) is None or not _may_change(journey):
        return request
    find, offered = (
        partial(each, asked.name, is_pooled=request.pool is not None)
        for each in (adapters.find, adapters.offered)
    )
    await fleet.wait_until(lambda: find() == offered(), request.limits.to_first_token)
    newest = offered()
    if newest is not None and newest != asked:
        journey.request = msgspec.structs.replace(request, adapter=newest)
        journey.attempts.computed_by(newest.digest)
    return journey.request


def _may_change(journey: Journey) -> bool:
    """Nobody has anything of it, here or from an earlier connection."""
    was_never_sent = journey.worker is None
    return journey.request.first_part is None and (was_never_sent or journey.has_nothing)
