"""What a command says of prefix caches that it has had handed on."""

from __future__ import annotations

from collections.abc import Sequence

from cli.terminal import say
from cluster.dial.dialer import OperatorLink
from cluster.errors import SplitserveError
from cluster.handed_on import handed_in_words
from protos.fleet_watch_pb2 import EventsRequest
from protos.membership_pb2 import HandOnOrder

HAND_ON_S = 30.0
"""At most; what others have by then stays there."""
_ASK_S = 5.0
_HANDED_ON = "handed on"


async def newest_event(router: OperatorLink) -> int:
    """Its number, to ask for later ones."""
    return (await router.events(EventsRequest(limit=1), timeout_s=_ASK_S)).last


async def say_handed_on(router: OperatorLink, after: int) -> None:
    """What a supervisor has had handed on since that event."""
    answer = await router.events(EventsRequest(after=after, limit=1000), timeout_s=_ASK_S)
    for event in answer.events:
        if event.kind == _HANDED_ON:
            say(f"{event.subject} handed on {event.cause}")


async def hand_on(router: OperatorLink, worker_id: str, receivers: Sequence[str] = ()) -> bool:
    """Of one worker, now; `receivers`: to nobody else. Whether others have any of it now. What
    fails is said: the cache is then lost with the worker, and nothing else is."""
    order = HandOnOrder(worker_id=worker_id, receivers=receivers)
    try:
        answer = await router.hand_on(order, timeout_s=HAND_ON_S)
    except SplitserveError as failure:
        say(f"what {worker_id} has cached was not handed on: {failure.message}")
        return False
    if answer.reason:
        say(f"what {worker_id} has cached was not handed on ({answer.reason}): {answer.message}")
        return False
    say(f"{worker_id} handed on {handed_in_words(answer.report)}")
    received = answer.report.receivers
    return any(each.handed_tokens or each.known_tokens for each in received)
