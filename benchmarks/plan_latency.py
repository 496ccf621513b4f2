"""How long a step's plan is on its way: from the conductor's call until a rank has it."""

from __future__ import annotations

import os
import struct
import time

from ranks.plans.native_calls import load_plans
from ranks.plans.plan import PlanKind
from ranks.plans.segment import PlanSegment
from ranks.plans.shared_memory import SharedPlanReader, SharedPlanWriter

_STAMP = struct.Struct("<q")
_GAP_S = 0.002
"""Between two plans: as between two steps of decodes."""


def plan_latencies_us(body_bytes: int, count: int) -> list[float]:
    """Microseconds of `count` plans of that size, from one process to another."""
    library = load_plans()
    segment = PlanSegment.create(2, 1)
    outcome, told = os.pipe()
    child = os.fork()
    if child == 0:
        _read(segment, library, told)
    os.close(told)
    writer = SharedPlanWriter(segment, library)
    for _ in range(count):
        time.sleep(_GAP_S)
        writer.send(PlanKind.STEP, _STAMP.pack(time.monotonic_ns()), bytes(body_bytes))
    writer.send(PlanKind.STOP)
    with os.fdopen(outcome, "rb") as answers:
        packed = answers.read()
    os.waitpid(child, 0)
    writer.close()
    return [nanoseconds / 1e3 for (nanoseconds,) in _STAMP.iter_unpack(packed)]


def _read(segment: PlanSegment, library: object, told: int) -> None:
    """The other process, to its end."""
    reader = SharedPlanReader(segment, 1, library)  # type: ignore[arg-type]
    taken: list[int] = []
    while True:
        plan = reader.next(10.0)
        if plan is None or plan.kind is PlanKind.STOP:
            break
        taken.append(time.monotonic_ns() - _STAMP.unpack_from(plan.body)[0])
    with os.fdopen(told, "wb") as answers:
        answers.write(b"".join(map(_STAMP.pack, taken)))
    os._exit(0)
