"""The workers that a route names, as they are in the moment that its request is sent."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cluster.errors import WorkerLost
from cluster.identity import WorkerKey, owner_of
from cluster.wire import begun_to_wire, sampling_to_wire
from protos import worker_pb2
from router.dispatch.stream import RoutedRequest
from router.fleet.fleet import Fleet
from router.fleet.member import Assignment, FleetMember
from router.fleet.request_share import Seats
from router.fleet.standstill import Standstill
from router.fleet.worker_link import WorkerLink
from router.pricing.route import Route, RoutingView


class Assignments(msgspec.Struct, frozen=True):
    """One request's shares of its workers. Both methods are idempotent."""

    decode: Assignment
    prefill: Assignment | None
    """None: the decode worker computes the prompt."""

    def prefilled(self, left_tokens: int = 0) -> None:
        """The prompt is computed, and all but so many tokens of choices that go on: a prefill
        worker has nothing more to do for it."""
        self.decode.prefilled(left_tokens)
        if self.prefill is not None:
            self.prefill.release()

    def decoded(self) -> None:
        """The decode worker has made a token itself."""
        self.decode.decoded()

    def release(self) -> None:
        """Nobody has anything more to do for it."""
        self.decode.release()
        if self.prefill is not None:
            self.prefill.release()


class ChosenWorkers(msgspec.Struct, frozen=True):
    """Of one request at one decode worker."""

    decode: FleetMember
    session: WorkerLink
    standstill: Standstill
    """Both are the decode worker's."""
    prefill: list[FleetMember]
    """Best first: the first is to compute the prompt. Empty: the decode worker does."""
    found: Mapping[WorkerKey, int]
    """Tokens of the prompt that each was believed to have when it was decided on."""

    @classmethod
    def of(cls, view: RoutingView, route: Route, fleet: Fleet) -> ChosenWorkers:
        """Raises WorkerLost when the decode worker has gone since; of the others, who is left."""
        decode = fleet.find(route.decode)
        if decode is None or decode.session is None or decode.standstill is None:
            raise WorkerLost(f"decode worker {route.decode.worker_id} left; try again")
        prefill = [item for key in route.prefill if (item := fleet.find(key)) is not None]
        found = {item.key: item.matched_tokens for item in (*view.decode, *view.prefill)}
        return cls(decode, decode.session, decode.standstill, prefill, found)

    @property
    def all(self) -> tuple[FleetMember, ...]:
        """Everyone who may have a part in it."""
        return (self.decode, *self.prefill)

    @property
    def computing(self) -> FleetMember:
        """Who is to compute the prompt, unless it fails."""
        return next(iter(self.prefill), self.decode)

    @property
    def is_local(self) -> bool:
        """True when that is the decode worker."""
        return not self.prefill

    def assign(self, request: RoutedRequest) -> Assignments:
        """Counts the request at the decode worker and at who computes its prompt, or nowhere."""
        request_id, num_prompt = request.request_id, request.num_known_tokens
        total = num_prompt + request.max_stored_tokens
        uncached = self._uncached(self.computing, request.num_tokens_to_compute)
        seats = Seats(request.num_sequences, self._uncached(self.decode, num_prompt))
        turn = uncached if self.is_local else None
        decode = self.decode.assign(request_id, num_tokens=total, prefill_tokens=turn, seats=seats)
        if self.is_local:
            return Assignments(decode, None)
        try:
            prefill = self.computing.assign(
                request_id, num_tokens=num_prompt, prefill_tokens=uncached
            )
        except BaseException:
            decode.release()
            raise
        decode.computed_by = self.computing.key
        return Assignments(decode, prefill)

    def submission(self, request: RoutedRequest) -> worker_pb2.Submit:
        """What the decode worker is sent."""
        return worker_pb2.Submit(
            request_id=request.attempt_id,
            token_ids=request.token_ids,
            sampling=sampling_to_wire(request.sampling),
            prefill=[
                worker_pb2.PrefillTarget(
                    worker_id=item.key.worker_id,
                    incarnation=item.key.incarnation,
                    address=item.member.address,
                )
                for item in self.prefill
            ],
            cache_root=request.root_at(self.decode.pairing_key),
            timeout_ms=max(1.0, request.limits.whole.remaining_ms),
            first_token_ms=max(1.0, request.limits.to_first_token.remaining_ms),
            asked_s=request.limits.asked_s,
            resume=map(begun_to_wire, request.resume),
            prediction=request.prediction,
            pool=None
            if (wish := request.pool) is None
            else worker_pb2.PoolWish(pooling=wish.pooling, dimensions=wish.dimensions),
            adapter=request.adapter_digest,
            owner=owner_of(request.tenant) if request.adapter is not None else b"",
        )

    def _uncached(self, item: FleetMember, num_prompt_tokens: int) -> int:
        return max(1, num_prompt_tokens - self.found.get(item.key, 0))
