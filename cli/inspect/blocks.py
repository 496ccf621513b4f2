"""`blocks` and `get leases`: each worker's KV blocks by state, and what holds those that are held.

free | cached (a prefix, evictable) | active (sequences) | exported (pinned for a reader) |
receiving (reserved for blocks under way)
"""

from __future__ import annotations

from cli.inspect.members import Seen, members_of, the_worker
from cli.view import Sheet, View
from cluster.dial.dialer import OperatorLink

_STATES = ("total", "free", "cached", "active", "exported", "receiving")
_HELD = ("active", "exported", "receiving")


async def blocks_view(router: OperatorLink, worker_id: str | None, *, held: bool) -> View:
    """Of one worker or all; `held`: of what somebody holds alone. Raises NotFound."""
    answer = await members_of(router)
    members = [the_worker(answer, worker_id)] if worker_id else list(answer.members)
    states = _HELD if held else _STATES
    heading = ("WORKER", *map(str.upper, states), "LEASES", "SEQUENCES")
    rows = [
        (each.member.worker_id, *(str(_blocks(each, state)) for state in states), *_holders(each))
        for each in members
    ]
    data = [
        {"worker_id": each.member.worker_id}
        | {f"{state}_blocks": _blocks(each, state) for state in states}
        | {"num_leases": each.load.num_leases, "num_running": each.load.num_running}
        for each in members
    ]
    return View(data, [Sheet(heading, rows)], "no workers have joined")


async def leases_view(router: OperatorLink) -> View:
    """Workers with blocks that are promised to another worker, or expected from one."""
    holding = [seen for seen in (await members_of(router)).members if seen.load.num_leases]
    data = [
        {
            "worker_id": seen.member.worker_id,
            "num_leases": seen.load.num_leases,
            "exported_blocks": seen.load.exported_blocks,
            "receiving_blocks": seen.load.receiving_blocks,
        }
        for seen in holding
    ]
    rows = [tuple(str(value) for value in row.values()) for row in data]
    heading = ("WORKER", "LEASES", "EXPORTED BLOCKS", "RECEIVING BLOCKS")
    return View(data, [Sheet(heading, rows)], "no leases")


def _blocks(seen: Seen, state: str) -> int:
    return int(getattr(seen.load, f"{state}_blocks"))


def _holders(seen: Seen) -> tuple[str, str]:
    return str(seen.load.num_leases), str(seen.load.num_running)
