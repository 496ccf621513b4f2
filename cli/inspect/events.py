"""`events`: what has happened to a fleet, and what happens."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime

from google.protobuf.json_format import MessageToDict

from cli.exit_code import ExitCode
from cli.json_output import as_json_line
from cli.question import ROUTER_TIMEOUT_S, complained
from cli.terminal import say, shown
from cli.view import Sheet, View
from cluster.deadline import Sleep
from cluster.dial.dialer import Dialer, OperatorLink
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import DeadlineExceeded, SplitserveError, WorkerLost
from cluster.join_token import operators_token
from protos import fleet_watch_pb2

_HEADING = ("TIME", "EVENT", "OF", "COUNT", "CAUSE")
_NUMBERS = ("number", "count")


async def events_view(router: OperatorLink, limit: int) -> View:
    """The newest of them, oldest first."""
    asked = fleet_watch_pb2.EventsRequest(limit=limit)
    events = (await router.events(asked, timeout_s=ROUTER_TIMEOUT_S)).events
    data = [_fields(event) for event in events]
    return View(data, [Sheet(_HEADING, [_row(event) for event in events])], "nothing has happened")


def follow_events(
    address: str,
    form: str,
    every_s: float,
    *,
    limit: int = 100,
    dialer: Dialer | None = None,
    sleep: Sleep = asyncio.sleep,
) -> ExitCode:
    """A line for each, until Ctrl-C: `form` json is a document a line. A router that is away for a
    while is asked again; REFUSED without its token."""
    dialer = dialer or GrpcDialer(operators_token())
    return asyncio.run(_follow(dialer, address, _Lines(form, limit), every_s, sleep))


async def _follow(
    dialer: Dialer, address: str, lines: _Lines, every_s: float, sleep: Sleep
) -> ExitCode:
    router, is_away = dialer.operator(address), False
    try:
        while True:
            try:
                await lines.more(router)
                is_away = False
            except (WorkerLost, DeadlineExceeded) as failure:
                if not is_away:
                    say(f"the router does not answer at {address}: {failure.message}")
                is_away = True
            except SplitserveError as failure:
                return complained(failure, address)
            await sleep(every_s)
    finally:
        await router.close()


class _Lines:
    """Those that were not printed yet."""

    def __init__(self, form: str, limit: int) -> None:
        self._form = form
        self._limit = limit
        self._last = 0

    async def more(self, router: OperatorLink) -> None:
        asked = fleet_watch_pb2.EventsRequest(after=self._last, limit=self._limit)
        answer = await router.events(asked, timeout_s=ROUTER_TIMEOUT_S)
        if answer.last < self._last:  # it was started anew, and counts from the beginning
            self._last = 0
            return
        self._last = answer.last
        for event in answer.events:
            text = as_json_line(_fields(event)) if self._form == "json" else _line(event)
            print(shown(text, sys.stdout), flush=True)


def _fields(event: fleet_watch_pb2.FleetEvent) -> dict[str, object]:
    fields: dict[str, object] = MessageToDict(
        event, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    numbers = {name: int(getattr(event, name)) for name in _NUMBERS}
    return fields | numbers | {"at": _time(event.at_s), "first_at": _time(event.first_at_s)}


def _row(event: fleet_watch_pb2.FleetEvent) -> tuple[str, ...]:
    times = _time(event.at_s)
    return (times, event.kind, event.subject or "-", str(event.count), event.cause or "-")


def _line(event: fleet_watch_pb2.FleetEvent) -> str:
    often = f" ({event.count} times)" if event.count > 1 else ""
    time, kind, subject, _, cause = _row(event)
    return f"{time}  {kind:<10}  {subject:<16}  {cause}{often}"


def _time(at_s: float) -> str:
    """By the router's clock, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
