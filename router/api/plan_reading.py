"""A body to a plan, by whoever may read one of its size."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from cluster.deadline import Deadline
from router.api.reading.nesting import refusing_depth
from router.api.reading.plan import BodyReader, Plan
from router.front.caller import Caller
from router.front.doors import DoorContext
from router.front.text_work import LARGE_BODY_BYTES, NotHere


async def plan_of(
    body: bytes,
    reader: BodyReader,
    door: DoorContext,
    deadline: Callable[[], Deadline],
    caller: Caller,
) -> Plan:
    """A small body here, a large one by a text worker, within the deadline. Raises InvalidRequest
    and its kin."""
    if len(body) <= LARGE_BODY_BYTES:
        await door.share.breathe()
        with suppress(NotHere), refusing_depth():
            return reader.read(body)
    large = await door.pipeline.read_large(reader.door, body, deadline(), caller)
    return msgspec.structs.replace(reader.join(large.rest, large.prompts), ignored=large.ignored)
