"""An operator has adapters loaded and unloaded: every worker of the fleet is told, all at once, and
those that join later when they do.

    told -> a worker answers -> its next beat, which it sends at once, says so -> requests go by it

The answer and the beat come on two connections, in any order: the operator is answered after both.
"""

from __future__ import annotations

import asyncio
from functools import partial

from cluster.adapter import check_name
from cluster.dial.dialer import WorkerAdminLink
from cluster.errors import AdapterRefused, InvalidRequest, SplitserveError, status_of
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from cluster.process.background import Background, until_one_ends
from cluster.world import World
from protos.membership_pb2 import AdapterAnswer, AdapterOutcome
from protos.worker_pb2 import LoadAdapterRequest, UnloadAdapterRequest
from router.control.standing_adapters import (
    SAYS_SO_AFTER_S,
    AdapterOrder,
    StandingAdapters,
    StandingOrder,
)
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.fleet.own_address import own_address

MAX_PATH_CHARS = 1024
LOAD_TIMEOUT_S = 60.0
"""Of each worker: it reads files, perhaps from far away."""
FIRST_REST_S, MAX_REST_S = 1.0, 64.0
"""Of a worker that could not do what was ordered before it joined; each time twice as long. Its
storage may hang, and an order takes the turn of its own looks."""
_REFUSED = status_of(AdapterRefused("")).code
_log = get_logger("adapters")


class AdapterOrders:
    """Of one router, for all of its doors. From the event loop only."""

    def __init__(
        self, fleet: Fleet, background: Background, world: World, *, model_name: str = ""
    ) -> None:
        """`model_name`: see OwnModel."""
        self._fleet, self._background, self._world = fleet, background, world
        self._model_name = model_name
        self._standing = StandingAdapters(world.clock)
        self._seen: set[WorkerKey] = set()
        """Members that have been told what stands, or are."""
        fleet.changes.watch(self._look)

    async def load(self, request: LoadAdapterRequest) -> AdapterAnswer:
        """What came of it at each worker, once requests get the adapter by that name. Raises
        InvalidRequest for no name and no path, and AdapterRefused for the model's own name, before
        anybody is told."""
        if check_name(request.name) == self._model_name:
            raise AdapterRefused(
                f"{request.name} is the name of the model itself, which requests by it get; give "
                "the adapter another",
                param="lora_name",
            )
        if not 1 <= len(request.path) <= MAX_PATH_CHARS:
            raise InvalidRequest(
                f"the path of an adapter has {len(request.path)} characters; allowed: 1 to "
                f"{MAX_PATH_CHARS}",
                param="lora_path",
            )
        return await self._tell_all(request)

    async def unload(self, request: UnloadAdapterRequest) -> AdapterAnswer:
        """As `load`, once no request gets it; nothing is amiss where a worker does not have it."""
        check_name(request.name)
        return await self._tell_all(request)

    def may_be_known(self, name: str) -> bool:
        """A worker has it by its last beat, or is to load it, or may be about to read it."""
        return self._is_to_load(name) or any(
            _digest_at(item, name) or name in item.state.unread_adapters for item in self._members()
        )

    async def _tell_all(self, request: AdapterOrder) -> AdapterAnswer:
        """It stands at once: who joins meanwhile is told as well."""
        order = StandingOrder(request)
        before = self._standing.put(order)
        if before is not None:
            self._fleet.changes.announce()  # nobody waits for beats about that one any more
        try:
            outcomes = await asyncio.gather(*(self._tell(item, order) for item in self._members()))
        finally:
            if not order.done:
                self._standing.undo(order, before)
        await self._until_beats_say_so(order)
        return AdapterAnswer(outcomes=outcomes)

    async def _until_beats_say_so(self, order: StandingOrder) -> None:
        """Of all workers that have done it. One that tells nothing holds up nobody for longer than
        SAYS_SO_AFTER_S: the order is done there, and what is amiss is the way from it."""
        is_said = partial(self._is_said, order)
        if is_said():
            return
        heard = self._fleet.changes.until(is_said)
        await until_one_ends(heard, self._world.sleep(SAYS_SO_AFTER_S))
        if not is_said():
            _log.warning(
                "workers have done what was ordered about an adapter and their beats do not say so",
                name=order.request.name,
                workers=[key.worker_id for key in self._done_unsaid(order)],
            )

    def _is_said(self, order: StandingOrder) -> bool:
        """Or there is nothing to wait for: another order about the name stands, or none."""
        is_standing = self._standing.of(order.request.name) is order
        return not (is_standing and self._done_unsaid(order))

    def _done_unsaid(self, order: StandingOrder) -> list[WorkerKey]:
        """Members that have done it, and say otherwise still."""
        name, found = order.request.name, self._fleet.find
        return [
            key
            for key, (digest, _) in order.done.items()
            if (item := found(key)) is not None and not _says(item, name, digest)
        ]

    async def _tell(self, item: FleetMember, order: StandingOrder) -> AdapterOutcome:
        link = self._world.dialer.worker_admin(own_address(item.member))
        try:
            outcome = AdapterOutcome(digest=await _carry_out(link, order.request))
        except SplitserveError as error:
            outcome = AdapterOutcome(code=status_of(error).code, message=error.message)
        else:
            self._standing.note_done(order, item.key, outcome.digest)
        finally:
            await link.close()
        outcome.worker_id = item.key.worker_id
        return outcome

    def _members(self) -> list[FleetMember]:
        """That take such orders: other engines' servers do not."""
        return [item for item in self._fleet.members if item.member.pairing.is_ours]

    def _look(self) -> None:
        """The fleet has changed."""
        members = {item.key: item for item in self._members()}
        new = [key for key in members if key not in self._seen]
        self._seen = set(members)
        if not self._standing:
            return
        told = {key: item.state.adapters for key, item in members.items()}
        for name in self._standing.look(told):
            _log.info("an order about an adapter stands no more: its worker has another", name=name)
        for key in new:
            bringing = self._bring_in(members[key])
            self._background.once(f"adapter orders {key.worker_id}", bringing)

    async def _bring_in(self, item: FleetMember) -> None:
        """What stands is told to one that has joined: first what it is to unload, which waits for
        no storage, then the others, each in order; what it could not do is told again after ever
        longer rests, unless it will not have it."""
        names, rest_s = sorted(self._standing.names, key=self._is_to_load), FIRST_REST_S
        while True:
            names = [name for name in names if not await self._bring(item, name)]
            if not names:
                return
            await self._world.sleep(rest_s)
            rest_s = min(2 * rest_s, MAX_REST_S)
            if self._fleet.find(item.key) is None:
                return

    def _is_to_load(self, name: str) -> bool:
        order = self._standing.of(name)
        return order is not None and isinstance(order.request, LoadAdapterRequest)

    async def _bring(self, item: FleetMember, name: str) -> bool:
        """A new order about the same name that comes meanwhile is told again, so as to be the last.
        False: what was told last may be done another time."""
        told, outcome = None, AdapterOutcome()
        while (order := self._standing.of(name)) not in (None, told):
            assert order is not None
            told = order
            outcome = await self._tell(item, order)
            if outcome.code:
                self._log_failure(item, name, outcome)
        return order is None or outcome.code in ("", _REFUSED)

    def _log_failure(self, item: FleetMember, name: str, outcome: AdapterOutcome) -> None:
        _log.warning(
            "a worker that joined has not done what was ordered before",
            worker_id=item.key.worker_id,
            name=name,
            cause=outcome.message,
        )


def _says(item: FleetMember, name: str, digest: str) -> bool:
    """Whether that is what the name stands for there by its last beat; empty: nothing, and not
    soon."""
    is_to_come = not digest and name in item.state.unread_adapters.names
    return _digest_at(item, name) == digest and not is_to_come


def _digest_at(item: FleetMember, name: str) -> str:
    """What the name stands for there by its last beat; empty: nothing."""
    adapters = (loaded.adapter for loaded in item.state.adapters)
    return next((adapter.digest for adapter in adapters if adapter.name == name), "")


async def _carry_out(link: WorkerAdminLink, request: AdapterOrder) -> str:
    """The digest that the name stands for then; empty: for none."""
    if isinstance(request, LoadAdapterRequest):
        return (await link.load_adapter(request, timeout_s=LOAD_TIMEOUT_S)).digest
    await link.unload_adapter(request, timeout_s=LOAD_TIMEOUT_S)
    return ""
