"""From a request and the fleet to the view that the policy decides on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import msgspec

from cluster.adapter import Adapter
from cluster.errors import ContextTooLong, NoWorker
from cluster.identity import Role, WorkerKey
from cluster.models.pooling import PoolingKind
from router.dispatch.fleet_room import free_in_ms
from router.dispatch.room import cut_to, with_room
from router.dispatch.stream import RoutedRequest
from router.fleet.fleet import Fleet
from router.fleet.member import FleetMember
from router.fleet.room_part import RoomPart
from router.index.prefix_index import PrefixIndex, PrefixMatches
from router.pricing.estimates import Estimates, link_bytes_per_s
from router.pricing.policy import choose_route
from router.pricing.route import RouteReason, RoutingView, WorkerView
from router.telemetry.decisions import Decision

DEFAULT_DECODE_STEP_MS = 20.0
"""Before a worker has decoded; measured on two CPU cores, 135M parameters: 18 to 22 ms."""
_TURNS = 1 << 30


class RoutingDesk:
    """Takes a decision; changes nothing. `chance` draws among workers of nearly equal price."""

    def __init__(
        self,
        fleet: Fleet,
        index: PrefixIndex,
        estimates: Estimates,
        chance: Random,
        allows_local: Callable[[], bool] = lambda: True,
    ) -> None:
        """`allows_local`: whether decode workers may compute prompts that a pair could have."""
        self._fleet = fleet
        self._index = index
        self._estimates = estimates
        self._chance = chance
        self._allows_local = allows_local

    def decide(
        self, request: RoutedRequest, excluded: frozenset[WorkerKey], part: RoomPart | None = None
    ) -> Decision:
        """The route of a request, avoiding `excluded` workers, and those that `part` does not fit
        in where it fits in others. Of a prompt that is pooled the route's decode worker is the
        prefill worker that answers.

        Raises ContextTooLong when it fits in no worker that answers, NoWorker when none takes it
        now.
        """
        decode = self._decode_members(request, excluded, part)
        reason = _why_alone(request, part)
        prefill = [] if reason else self._prefill_members(request, excluded, part)
        if part is not None and not prefill:
            decode = _in_turn(decode)
        view = self._view(request, decode, prefill)
        route = choose_route(view)
        if reason is not None:
            route = msgspec.structs.replace(route, reason=reason)
        notes = (*self._fleet.mismatches, *self._notes_on_adapter(request))
        return Decision(request.request_id, view, route, notes)

    def _notes_on_adapter(self, request: RoutedRequest) -> Iterator[str]:
        """Who is no place for it, in words."""
        if (adapter := request.adapter) is None:
            return
        yield computed_by(adapter)
        for item in (*self._fleet.open(Role.DECODE), *self._fleet.open(Role.PREFILL)):
            if not item.has_adapter(adapter.digest):
                yield f"{item.key.worker_id} does not have that adapter"

    @property
    def max_num_seqs(self) -> int | None:
        """That the decode worker with most seats decodes at once; None: one has not said."""
        seats = [item.member.max_num_seqs for item in self._fleet.served(Role.DECODE)]
        return max(seats, default=None) if all(seats) else None

    def has_place(self, request: RoutedRequest, excluded: frozenset[WorkerKey]) -> bool:
        """True when a decode worker that is not `excluded` could be sent the request, trusted or
        not."""
        members = [item for item in self._open(request) if item.key not in excluded]
        return bool(with_room(members, request))

    def fitted(self, request: RoutedRequest, decode: WorkerKey) -> RoutedRequest:
        """The request as it is sent there: a length that nobody asked for is cut to the room."""
        item = self._fleet.find(decode)
        return request if item is None else cut_to(request, item)

    def _prefill_members(
        self, request: RoutedRequest, excluded: frozenset[WorkerKey], part: RoomPart | None
    ) -> list[FleetMember]:
        """Where the request has its turn: of those that want a prompt now, if there are any."""
        able = [
            item
            for item in self._fleet.ready(Role.PREFILL)
            if item.capacity_tokens >= request.num_known_tokens and item.key not in excluded
        ]
        if request.adapter is not None:
            able = [item for item in able if item.has_adapter(request.adapter.digest)]
        return _warm(able if part is None else [i for i in able if free_in_ms(i) == 0.0] or able)

    def _decode_members(
        self, request: RoutedRequest, excluded: frozenset[WorkerKey], part: RoomPart | None
    ) -> list[FleetMember]:
        role, pooling = request.answering, request.pooling
        ready = self._fleet.ready(role, without=excluded, pooling=pooling)
        if not ready:
            raise NoWorker(_why_none(request))
        able = with_room(ready, request)
        if not able:  # one that is not trusted now may have the room
            ready = [item for item in self._open(request) if item.key not in excluded]
            able = with_room(ready, request)
        if not able:
            beams = request.sampling.beams
            needed = len(request.token_ids) + request.sampling.max_tokens * (
                1 if beams is None else beams.width
            )
            each = "" if beams is None else f" in each of {beams.width} beams"
            limit = max(item.capacity_tokens for item in ready)
            raise ContextTooLong(
                f"{len(request.token_ids)} prompt tokens and max_tokens "
                f"{request.sampling.max_tokens}{each} need {needed} tokens; "
                f"the limit here is {limit}: "
                "shorten the prompt or ask for fewer tokens",
                param="max_tokens",
            )
        if part is not None:
            able = [item for item in able if part.fits(item.room)] or able
        return _warm(able)

    def _open(self, request: RoutedRequest) -> list[FleetMember]:
        """Who could be sent it, trusted or not."""
        return self._fleet.open(request.answering, request.pooling)

    def _view(
        self, request: RoutedRequest, decode: list[FleetMember], prefill: list[FleetMember]
    ) -> RoutingView:
        matches = self._matches(request, [*decode, *prefill])
        link = self._estimates.kv_bytes_per_s
        max_tokens = request.sampling.max_tokens - request.num_begun_tokens
        return RoutingView(
            prompt_tokens=request.num_known_tokens,
            max_tokens=max_tokens,
            block_size_tokens=max(item.member.pairing.block_size_tokens for item in decode),
            decode=tuple(self._worker_view(item, matches, link) for item in decode),
            prefill=tuple(self._worker_view(item, matches, link) for item in prefill),
            handoff_ms=self._estimates.handoff_ms,
            expected_tokens=min(max_tokens, self._estimates.completion_tokens),
            num_choices=request.num_sequences,
            links=self._estimates.links.rates(),
            allows_local_prefill=self._allows_local(),
            turn=self._chance.randrange(_TURNS),
        )

    def _matches(
        self, request: RoutedRequest, members: list[FleetMember]
    ) -> dict[WorkerKey, PrefixMatches]:
        """Workers of unequal pairings and block sizes name the same tokens differently.

        A prompt whose tokens are scored is computed whole, cached or not, wherever that is; so is
        one of which the hidden states of all tokens count.
        """
        scores = request.sampling.prompt_logprobs is not None
        packed = b"" if scores or request.pooling == PoolingKind.MEAN else request.packed
        names = {item.key: _naming(request, item) for item in members}
        found = {
            (namer, size): self._index.match(request.root_at(namer), packed, size)
            for namer, size in set(names.values())
        }
        return {key: found[name] for key, name in names.items()}

    def _worker_view(
        self,
        item: FleetMember,
        matches: dict[WorkerKey, PrefixMatches],
        link: float | None,
    ) -> WorkerView:
        load, block_size = item.load, item.member.pairing.block_size_tokens
        others = item.elsewhere
        return WorkerView(
            key=item.key,
            pairing_key=item.pairing_key,
            speed=self._estimates.prefill.speed_of(item.key),
            matched_tokens=matches[item.key].of(item.key) * block_size,
            hit_share=item.hits.share,
            waiting_tokens=max(
                load.waiting_prefill_tokens, item.pending_prefill_tokens + others.prefill_tokens
            ),
            waiting_prompts=max(load.waiting_prompts, item.pending_prompts + others.num_prompts),
            in_flight_tokens=item.in_flight_tokens + others.num_tokens,
            num_running=max(load.num_running, item.num_in_flight + others.num_requests),
            decode_step_ms=load.decode_step_ms or DEFAULT_DECODE_STEP_MS,
            decode_row_ms=load.decode_row_ms or None,
            free_tokens=item.free_tokens,
            kv_bytes_per_token=item.kv_bytes_per_token,
            kv_bytes_per_s=link_bytes_per_s(link, load.kv_bytes_per_s),
        )


def computed_by(adapter: Adapter) -> str:
    """A note on a decision, in words."""
    return f"computed by adapter {adapter.name} ({adapter.digest})"


def _naming(request: RoutedRequest, item: FleetMember) -> tuple[str, int]:
    """By which its blocks have their names there."""
    namer = request.namer_at(item.key, item.pairing_key)
    return namer, item.member.pairing.block_size_tokens


def _why_none(request: RoutedRequest) -> str:
    role, keeper = request.answering, request.keeper
    if request.sampling.is_drawn and keeper is not None and keeper.is_behind:
        return (
            f"no {role} worker that takes new work would draw again what this answer's client has "
            "and its record lacks: try again later, or send the request anew"
        )
    if request.adapter is not None:
        return f"no {role} worker that takes new work has the adapter {request.adapter.name}"
    return f"no {role} worker takes new work"


def _why_alone(request: RoutedRequest, part: RoomPart | None) -> RouteReason | None:
    """Why nobody but who answers can have a part in it; None: a prefill worker can."""
    if request.pool is not None:
        return RouteReason.POOLED
    if part is not None and part.is_local:
        return RouteReason.LINE_TOO_LONG
    return RouteReason.SEVERAL_GO_ON if len(request.resume) > 1 else None


def _in_turn(members: list[FleetMember]) -> list[FleetMember]:
    """Those that want a prompt now, if there are any."""
    return [item for item in members if free_in_ms(item) == 0.0] or members


def _warm(members: list[FleetMember]) -> list[FleetMember]:
    """Those that may have one more, else those that have answered since they came, else all: a
    cold worker gets its share little by little, but nobody waits for that."""
    with_room = [item for item in members if item.has_room]
    return with_room or [item for item in members if item.slow_start.is_proven] or members
