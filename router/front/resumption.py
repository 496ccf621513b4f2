"""Answers that another connection may go on with: when they begin, and when it wants the rest.

begin: a name of its own, and a keeper beside the request
resume: by the name of an event and the tenant -> the request again, with what was told of it
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import msgspec

from cluster.block_hash import unpack_tokens
from cluster.errors import InvalidRequest, NotReady, NotResumable
from cluster.identity import UniqueHex, unique_hex
from cluster.process.loop_share import LoopShare
from cluster.sampling import SamplingParams
from router.dispatch.stream import RoutedRequest
from router.dispatch.time_limits import TimeLimits
from router.front.generation_request import TextOptions
from router.front.prepared_generation import PreparedGeneration
from router.front.served_model import ServedModel
from router.resume.kept_answer import KeptAnswer
from router.resume.kept_answers import KeptAnswers
from router.resume.place import ReadersPlace
from router.resume.record import Record, read
from router.resume.shared_answers import AnswersAway, SharedAnswers, TakenAnswer
from router.telemetry.resume_metrics import ResumeMetrics
from router.tenants.tenant import Tenant
from router.text.stop_strings import StopStrings

AWAY_RETRY_S = 1.0
"""Routers look for a store that is away as often."""


class KeptRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request as it was understood, for whoever goes on with its answer."""

    door: str
    """Where it came in; only there it goes on."""
    told_as: bytes
    """What the door needs to tell it in the same words."""
    model: tuple[str, str]
    """Name and fingerprint."""
    packed_prompt: bytes
    sampling: SamplingParams
    is_default_length: bool
    expected_tokens: int | None
    tenant_salt: str
    stops: tuple[str, ...]
    keep_tokens: bool
    text: TextOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumable:
    """One connection's part of an answer that another one may go on with."""

    prepared: PreparedGeneration
    place: ReadersPlace
    told_as: bytes
    keeper: KeptAnswer

    @property
    def event_id(self) -> str | None:
        """Of the event that is about to be told; None: nobody can go on after it."""
        return self.place.event_id if self.keeper.is_kept else None


class Resumption:
    """One per router, for both doors."""

    def __init__(
        self,
        model: ServedModel,
        answers: KeptAnswers,
        shared: SharedAnswers | None,
        *,
        share: LoopShare,
        metrics: ResumeMetrics,
        draw: UniqueHex = unique_hex,
    ) -> None:
        """`draw` names answers: nobody guesses a name. `shared` None: no other router has them."""
        self._model = model
        self._answers = answers
        self._shared = shared
        self._share = share
        self._metrics = metrics
        self._draw = draw

    def begin(
        self, prepared: PreparedGeneration, tenant: Tenant, *, door: str, told_as: bytes
    ) -> Resumable:
        """It runs as any other; what is told of it is kept from its first token on."""
        answer_id = self._draw()
        head = msgspec.msgpack.encode(_kept_request(prepared, self._model, door, told_as))
        keeper = KeptAnswer(_key(tenant, answer_id), tenant.name, head, self._answers)
        routed = replace(prepared.routed, keeper=keeper)
        place = ReadersPlace.at_beginning(answer_id, routed.sampling.n)
        return Resumable(
            prepared=replace(prepared, routed=routed), place=place, told_as=told_as, keeper=keeper
        )

    async def resume(
        self, event_id: str, tenant: Tenant, request_id: str, limits: TimeLimits, *, door: str
    ) -> Resumable:
        """The rest of an answer, after that event; who was told it before gets no more. Raises
        InvalidRequest, NotReady while nobody can tell, and NotResumable for what is unknown, over
        or another tenant's alike."""
        place = ReadersPlace.parse(event_id)
        keeper = await self._take(_key(tenant, place.answer_id), tenant)
        self._metrics.asked(is_known=keeper is not None)
        if keeper is None:
            raise self._not_resumable()
        request = msgspec.msgpack.decode(keeper.head, type=KeptRequest)
        self._check(request, place, door)
        record = await read(keeper.batches, self._share)
        self._answers.left(keeper, None)
        keeper.is_kept = self._answers.keep(keeper)
        routed = replace(_routed(request, record, tenant, limits, request_id), keeper=keeper)
        prepared = PreparedGeneration(
            routed,
            StopStrings(request.stops),
            request.keep_tokens,
            account=tenant.account,
            text=request.text,
            past=record.past,
        )
        return Resumable(prepared=prepared, place=place, told_as=request.told_as, keeper=keeper)

    async def _take(self, key: bytes, tenant: Tenant) -> KeptAnswer | None:
        """For this connection; the last one's part is over. Raises NotReady."""
        here = self._answers.find(key)
        taken = await self._taken_from_others(key, is_here=here is not None)
        if here is not None:
            here.taken()
        if here is not None and (taken is None or here.epoch + 1 >= taken.epoch):
            head, batches, num_shared = here.head, here.batches, here.num_shared
        elif taken is not None:
            head, batches, num_shared = taken.head, taken.batches, len(taken.batches)
        else:
            return None
        keeper = KeptAnswer(key, tenant.name, head, self._answers)
        keeper.goes_on_from(batches)
        keeper.num_shared = num_shared
        keeper.may_be_shared = taken is not None or (here is not None and here.may_be_shared)
        if (newest := taken or here) is not None:
            keeper.epoch = newest.epoch
        return keeper

    async def _taken_from_others(self, key: bytes, *, is_here: bool) -> TakenAnswer | None:
        """What is away is no reason to refuse what is here. Raises NotReady for all else."""
        try:
            return None if self._shared is None else await self._shared.take(key)
        except AnswersAway:
            if is_here:
                return None
            raise NotReady(
                "the store that routers share is away, and with it the streams of other routers; "
                "ask for the rest again",
                retry_after_s=AWAY_RETRY_S,
            ) from None

    def _check(self, request: KeptRequest, place: ReadersPlace, door: str) -> None:
        if request.model != (self._model.name, self._model.fingerprint):
            raise NotResumable("this answer is of another model than is served here now")
        if request.door != door:
            raise InvalidRequest(f"this answer was begun at {request.door}; ask for the rest there")
        if request.sampling.n != place.num_choices:
            raise InvalidRequest(
                f"Last-Event-ID names {place.num_choices} choices; the answer has "
                f"{request.sampling.n}: send the id as it came",
                param="last_event_id",
            )

    def _not_resumable(self) -> NotResumable:
        within = f"{self._answers.limits.within_s:g} s"
        where = (
            ", at the router that began it: routers here share no store (--store)"
            if self._shared is None
            else ""
        )
        return NotResumable(
            f"no such answer is kept for this key: it is kept for {within} after its connection "
            f"is over, and while there is room{where}. Send the request anew"
        )


def _key(tenant: Tenant, answer_id: str) -> bytes:
    """Where a tenant's answer is kept. Another tenant's question is for another place, where
    nothing is: no secret is compared, and unknown and foreign take equally long."""
    return hashlib.sha256(f"{len(tenant.name)}:{tenant.name}:{answer_id}".encode()).digest()


def _kept_request(
    prepared: PreparedGeneration, model: ServedModel, door: str, told_as: bytes
) -> KeptRequest:
    routed = prepared.routed
    return KeptRequest(
        door=door,
        told_as=told_as,
        model=(model.name, model.fingerprint),
        packed_prompt=routed.packed,
        sampling=routed.sampling,
        is_default_length=routed.is_default_length,
        expected_tokens=routed.expected_tokens,
        tenant_salt=routed.tenant_salt,
        stops=prepared.stops.strings,
        keep_tokens=prepared.keep_tokens,
        text=prepared.text,
    )


def _routed(
    request: KeptRequest, record: Record, tenant: Tenant, limits: TimeLimits, request_id: str
) -> RoutedRequest:
    """As it goes on. Once it has begun its length is what its first worker had room for."""
    sampling, is_default_length = request.sampling, request.is_default_length
    if record.max_tokens is not None:
        sampling, is_default_length = replace(sampling, max_tokens=record.max_tokens), False
    return RoutedRequest(
        request_id=request_id,
        token_ids=unpack_tokens(request.packed_prompt),
        sampling=sampling,
        is_default_length=is_default_length,
        tenant=tenant.name,
        weight=tenant.weight,
        priority=tenant.priority,
        expected_tokens=request.expected_tokens,
        tenant_salt=request.tenant_salt,
        limits=limits,
        first_part=record.first_part,
    )
