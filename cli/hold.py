"""`drain`, `cordon` and `uncordon`: what it would do, a question, the doing, and the end of it.

exit code 0 done, 1 no such worker, not agreed to, or not drained in time, 3 no router, 4 refused
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import typer

from cli.exit_code import ExitCode
from cli.handed_on import hand_on
from cli.question import ROUTER_TIMEOUT_S, complained
from cli.terminal import complain, say
from cli.view import Sheet, View
from cluster.deadline import Deadline, Sleep
from cluster.dial.dialer import Dialer, OperatorLink
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import SplitserveError
from cluster.identity import Role
from cluster.join_token import operators_token
from cluster.membership.hold import UNKNOWN_WORKER, HoldKind
from protos.membership_pb2 import HoldAnswer, HoldOrder

LOOK_EVERY_S = 1.5
"""A worker's own numbers, and those of other routers, come with its beats: once a second."""
ENOUGH_LOOKS = 2
"""In a row, that find nothing there: a request of another router may have been on its way."""
_IS_ALREADY = {
    HoldKind.NONE: "is not held",
    HoldKind.CORDON: "is cordoned already",
    HoldKind.DRAIN: "is drained already",
}
_STATES = {HoldKind.NONE: "takes requests", HoldKind.CORDON: "cordoned", HoldKind.DRAIN: "drained"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRequest:
    """A command's words. `wait_s`: None: it does not wait."""

    worker_id: str
    kind: HoldKind
    is_dry_run: bool = False
    is_agreed: bool = False
    is_forced: bool = False
    hands_on: bool = False
    """What it has cached goes to others at once."""
    wait_s: float | None = None
    form: str = "table"

    def order(self, *, is_dry_run: bool) -> HoldOrder:
        """For the router."""
        return HoldOrder(
            worker_id=self.worker_id, kind=self.kind, dry_run=is_dry_run, force=self.is_forced
        )


def run_hold(
    address: str,
    request: HoldRequest,
    *,
    dialer: Dialer | None = None,
    sleep: Sleep = asyncio.sleep,
) -> ExitCode:
    """See the head of the file. `address`: of any router of the worker's, or of several with
    commas: the first that answers judges, and all are told. A worker tells its other routers, and
    routers with a store each other; where it is a vLLM server and they have none, nobody does."""
    dialer = dialer or GrpcDialer(operators_token())
    try:
        return asyncio.run(_hold(dialer, address, request, sleep))
    except SplitserveError as failure:
        return complained(failure, address)


async def _hold(dialer: Dialer, address: str, request: HoldRequest, sleep: Sleep) -> ExitCode:
    places = [place.strip() for place in address.split(",")]
    routers = {place: dialer.operator(place) for place in places}
    try:
        router, answer = await _first_answer(routers, request.order(is_dry_run=True))
        if answer.reason:
            return _refused(answer)
        _view(answer).print(request.form)
        for line in _consequences(answer, hands_on=request.hands_on):
            say(line)
        if request.is_dry_run:
            return ExitCode.OK
        if not (request.is_agreed or typer.confirm("go on?", err=True)):
            return ExitCode.FAILED
        order = request.order(is_dry_run=False)
        answer = await router.hold(order, timeout_s=ROUTER_TIMEOUT_S)
        if answer.reason:
            return _refused(answer)
        for place, other in routers.items():
            if other is not router:
                await _tell_too(place, other, order)
        if request.hands_on and answer.role:
            await hand_on(router, request.worker_id)
        if request.wait_s is None:
            return ExitCode.OK
        return await _wait(router, request.worker_id, Deadline.after(request.wait_s), sleep)
    finally:
        for each in routers.values():
            await each.close()


async def _first_answer(
    routers: Mapping[str, OperatorLink], order: HoldOrder
) -> tuple[OperatorLink, HoldAnswer]:
    """Of the first that can be asked. Raises the last failure where none can."""
    *others, last = routers.values()
    for router in others:
        with contextlib.suppress(SplitserveError):
            return router, await router.hold(order, timeout_s=ROUTER_TIMEOUT_S)
    return last, await last.hold(order, timeout_s=ROUTER_TIMEOUT_S)


async def _tell_too(place: str, router: OperatorLink, order: HoldOrder) -> None:
    """One that does not have the worker, or knows it already, does nothing."""
    try:
        answer = await router.hold(order, timeout_s=ROUTER_TIMEOUT_S)
    except SplitserveError as failure:
        complain(
            f"the router at {place} was not told: {failure.message}",
            remedy="it learns it from the worker, or the store; of a vLLM server without a store "
            "say it again",
        )
        return
    if answer.reason and answer.reason != UNKNOWN_WORKER:
        complain(f"the router at {place} refused ({answer.reason}): {answer.message}")


async def _wait(router: OperatorLink, worker_id: str, deadline: Deadline, sleep: Sleep) -> ExitCode:
    """Until it is drained, or has gone: nothing is cut off here."""
    num_looks, left = 0, ""
    while num_looks < ENOUGH_LOOKS:
        if deadline.has_passed:
            complain(
                f"{worker_id} is not drained: {left}; what is there goes on there",
                remedy="`splitserve get requests --worker` names them; uncordon takes it back",
            )
            return ExitCode.FAILED
        await sleep(LOOK_EVERY_S)
        answer = await router.members(timeout_s=ROUTER_TIMEOUT_S)
        seen = next((s for s in answer.members if s.member.worker_id == worker_id), None)
        if seen is None:
            break
        left = f"{seen.num_in_flight} request(s), {seen.load.num_leases} lease(s) are left"
        num_looks = num_looks + 1 if seen.is_drained else 0
    say("drained")
    return ExitCode.OK


def _refused(answer: HoldAnswer) -> ExitCode:
    if answer.reason == UNKNOWN_WORKER:
        complain(answer.message)
        return ExitCode.FAILED
    complain(f"refused ({answer.reason}): {answer.message}")
    return ExitCode.REFUSED


def _view(answer: HoldAnswer) -> View:
    fields = {
        "worker_id": answer.worker_id,
        "role": answer.role,
        "hold_before": answer.kind_before or "none",
        "hold": answer.kind or "none",
        "num_requests": answer.num_requests,
        "cached_tokens": answer.cached_tokens,
        "others": list(answer.others),
    }
    row = (
        *(answer.worker_id, answer.role or "-", _word(answer.kind_before), _word(answer.kind)),
        *(str(answer.num_requests), str(answer.cached_tokens), ", ".join(answer.others) or "-"),
    )
    heading = ("WORKER", "ROLE", "NOW", "THEN", "REQUESTS", "CACHED TOKENS", "OTHERS")
    return View(fields, [Sheet(heading, [row])])


def _word(kind: str) -> str:
    return _STATES[HoldKind(kind)]


def _consequences(answer: HoldAnswer, *, hands_on: bool) -> Iterator[str]:
    """For people; on stderr."""
    if answer.kind == answer.kind_before:
        yield f"{answer.worker_id} {_IS_ALREADY[HoldKind(answer.kind)]}: nothing changes"
    elif not answer.role:
        yield f"{answer.worker_id} is away: it is so when it comes back"
    if answer.kind == HoldKind.NONE:
        return
    if answer.kind == HoldKind.DRAIN and answer.role == Role.DECODE:
        yield from _of_streams(answer)
    elif answer.num_requests:
        yield f"{answer.num_requests} request(s) there go on to their end"
    if answer.role == Role.PREFILL and not answer.others:
        yield "no prefill worker is left: decode workers compute prompts themselves"
    if answer.cached_tokens:
        yield (
            f"{answer.cached_tokens} cached tokens are of no use to new requests meanwhile: they "
            + (
                "are handed on as far as others have room"
                if hands_on
                else "are not handed on, and lost when the worker ends"
            )
        )


def _of_streams(answer: HoldAnswer) -> Iterator[str]:
    if not answer.num_requests:
        return
    if answer.others:
        yield f"{answer.num_requests} request(s) go on with {', '.join(answer.others)}"
    else:
        yield f"{answer.num_requests} request(s) stay to their end: nobody else decodes"
