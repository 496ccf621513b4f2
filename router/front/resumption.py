"""Answers that another connection may go on with: when they begin, and when it wants the rest.

begin: a name of its own, and a keeper beside the request
resume: by the name of an event and the tenant -> the request again, with what was told of it
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from cluster.errors import (
    InvalidRequest,
    NotAllowed,
    NotReady,
    NotResumable,
    ResumedElsewhere,
)
from cluster.identity import UniqueHex, unique_hex
from cluster.process.loop_share import LoopShare
from router.dispatch.time_limits import TimeLimits
from router.front.kept_request import KeptRequest, of_another_version
from router.front.prepared_generation import PreparedGeneration
from router.front.served_model import ServedModel
from router.resume.kept_answer import KeptAnswer
from router.resume.kept_answers import KeptAnswers
from router.resume.place import ReadersPlace
from router.resume.record import Record, read
from router.resume.shared_answers import AnswersAway, SharedAnswers
from router.telemetry.resume_metrics import ResumeMetrics
from router.tenants.tenant import Tenant
from router.text.stop_strings import StopStrings

AWAY_RETRY_S = 1.0
"""Routers look for a store that is away as often."""


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
        head = msgspec.msgpack.encode(KeptRequest.of(prepared, self._model, door, told_as))
        keeper = KeptAnswer(_key(tenant, answer_id), tenant.name, head, self._answers)
        routed = msgspec.structs.replace(prepared.routed, keeper=keeper)
        place = ReadersPlace.at_beginning(answer_id, routed.sampling.n)
        return Resumable(
            prepared=msgspec.structs.replace(prepared, routed=routed),
            place=place,
            told_as=told_as,
            keeper=keeper,
        )

    async def resume(
        self, event_id: str, tenant: Tenant, request_id: str, limits: TimeLimits, *, door: str
    ) -> Resumable:
        """The rest of an answer, after that event; who was told it before gets no more. Raises
        InvalidRequest, NotReady while nobody can tell, and NotResumable for what is unknown, over
        or another tenant's alike; NotAllowed for a key that is not for its model;
        ResumedElsewhere."""
        place = ReadersPlace.parse(event_id)
        key = _key(tenant, place.answer_id)
        try:
            request = KeptRequest.read(await self._head(key))
            self._check(request, place, door)
            self._check_key(request, tenant)
            keeper = await self._take(key, tenant)
            record = await self._record(keeper)
        except NotResumable:
            self._metrics.asked(is_known=False)
            raise
        self._metrics.asked(is_known=True)
        self._keep(keeper)
        keeper.is_read_by(place, record.first_part)
        routed = request.routed(record, tenant, limits, request_id)
        routed = msgspec.structs.replace(routed, keeper=keeper)
        prepared = PreparedGeneration(
            routed,
            StopStrings(request.stops),
            request.keep_tokens,
            account=tenant.account,
            text=request.text,
            past=record.past,
            num_resumes=keeper.num_resumes,
        )
        return Resumable(prepared=prepared, place=place, told_as=request.told_as, keeper=keeper)

    async def _head(self, key: bytes) -> bytes:
        """Of an answer that is still whoever's it was. Raises NotResumable and NotReady."""
        if (here := self._answers.find(key)) is not None:
            return here.head
        try:
            head = None if self._shared is None else await self._shared.head(key)
        except AnswersAway:
            raise _away() from None
        if head is None:
            raise self._not_resumable()
        return head

    async def _take(self, key: bytes, tenant: Tenant) -> KeptAnswer:
        """For this connection; the last one's part is over. What is away is no reason to refuse
        what is here. Raises NotResumable and NotReady."""
        taken, is_away = None, False
        try:
            taken = None if self._shared is None else await self._shared.take(key)
        except AnswersAway:
            is_away = True
        here = self._answers.find(key)
        if here is not None:
            here.taken()
        if here is not None and (taken is None or here.epoch + 1 >= taken.epoch):
            return here.next_keeper(here.epoch if is_away else here.epoch + 1)
        if taken is None:
            raise _away() if is_away else self._not_resumable()
        keeper = KeptAnswer(key, tenant.name, taken.head, self._answers)
        keeper.goes_on_from(taken.batches)
        keeper.epoch = keeper.num_resumes = taken.epoch
        keeper.num_shared, keeper.may_be_shared = len(taken.batches), True
        return keeper

    async def _record(self, keeper: KeptAnswer) -> Record:
        """Of an answer that was taken. Raises NotResumable for what nobody here could have told."""
        try:
            return await read(keeper.batches, self._share)
        except msgspec.MsgspecError:
            self._answers.forget(keeper)
            raise of_another_version() from None

    def _keep(self, keeper: KeptAnswer) -> None:
        """One connection has an answer, whoever asked for it meanwhile. Raises ResumedElsewhere."""
        standing = self._answers.find(keeper.key)
        if standing is not None and standing.epoch > keeper.epoch:
            raise ResumedElsewhere("another connection has asked for the rest of this answer")
        self._answers.left(keeper, None)
        keeper.is_kept = self._answers.keep(keeper)

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

    def _check_key(self, request: KeptRequest, tenant: Tenant) -> None:
        """Only a key that could have begun it goes on with it: a tenant's keys may differ. Raises
        NotAllowed."""
        model = self._model.name if request.adapter is None else request.adapter.name
        if not tenant.may_ask(model):
            raise NotAllowed(f"this API key is not for {model[:200]}")

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


def _away() -> NotReady:
    return NotReady(
        "the store that routers share is away, and with it the streams of other routers; "
        "ask for the rest again",
        retry_after_s=AWAY_RETRY_S,
    )
