"""`get workers` and `describe worker`: members as they told it with their last beats."""

from __future__ import annotations

from google.protobuf.json_format import MessageToDict

from cli.inspect.members import Seen, members_of, the_worker
from cli.view import Sheet, View
from cluster.dial.dialer import OperatorLink
from cluster.scaling.pool_members import pool_name

_HEADING = (
    *("WORKER", "ROLE", "STATE", "RUNNING", "WAITING", "KV USED", "BEAT AGE"),
    *("ADDRESS", "PID", "VERSION", "IN FLIGHT", "INDEXED", "TRANSPORT", "POOL"),
)
_NUM_WIDE = 7


async def workers_view(router: OperatorLink) -> View:
    """A row for each member."""
    members = (await members_of(router)).members
    return View(
        [worker_fields(seen) for seen in members],
        [Sheet(_HEADING, [_row(seen) for seen in members], _NUM_WIDE)],
        nothing="no workers have joined",
    )


async def worker_view(router: OperatorLink, worker_id: str) -> View:
    """All that the router knows of one. Raises NotFound."""
    found = worker_fields(the_worker(await members_of(router), worker_id))
    return View(found, [field_sheet(found)])


def worker_fields(seen: Seen) -> dict[str, object]:
    """As in the proto, 0 and "" told; what opens the worker's events is not."""
    fields: dict[str, object] = MessageToDict(
        seen, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    member = fields["member"]
    assert isinstance(member, dict)
    for secret in ("kv_reader_secret", "kv_events_key"):
        member.pop(secret, None)
    return fields


def field_sheet(found: dict[str, object]) -> Sheet:
    """A row for every value."""
    return Sheet(("FIELD", "VALUE"), list(_flat(found)))


def used_share(seen: Seen) -> float:
    """Of its KV blocks, held by somebody: neither free nor only cached."""
    load = seen.load
    used = load.total_blocks - load.free_blocks - load.cached_blocks
    return used / load.total_blocks if load.total_blocks else 0.0


def _row(seen: Seen) -> tuple[str, ...]:
    member, load = seen.member, seen.load
    return (
        *(member.worker_id, member.role, seen.state, str(load.num_running), str(load.num_waiting)),
        *(f"{used_share(seen):.0%}", f"{seen.beat_age_s:.1f}s"),
        *(member.address, str(member.pid), member.version, str(seen.num_in_flight)),
        *(str(seen.indexed_blocks), member.kv_transport or "-", pool_name(member)),
    )


def _flat(value: object, name: str = "") -> list[tuple[str, str]]:
    """Every value with its path, such as `load.free_blocks`."""
    if isinstance(value, dict):
        return [row for key, item in value.items() for row in _flat(item, f"{name}.{key}")]
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return [row for i, item in enumerate(value) for row in _flat(item, f"{name}.{i}")]
    if isinstance(value, list):
        value = ",".join(map(str, value)) or "-"
    return [(name.lstrip("."), "-" if value == "" else str(value))]
