"""One worker process as this router sees it: what it said, and what we have given it to do."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from math import ceil

from cluster.generation import EngineLoad
from cluster.identity import Role, WorkerKey
from cluster.kv_shape import ITEM_BYTES
from cluster.membership.hold import NO_HOLD, HoldKind, WorkerHold
from cluster.membership.member import Member, MemberState
from router.fleet.cooldown import Cooldown
from router.fleet.guessed_cache import GuessedCache
from router.fleet.hit_trust import HitTrust
from router.fleet.prompt_turns import PromptTurns
from router.fleet.request_share import (
    NO_SEATS,
    NOTHING_ELSEWHERE,
    GivenElsewhere,
    RequestShare,
    Seats,
)
from router.fleet.seat_part import SeatPart
from router.fleet.slow_start import SlowStart
from router.fleet.stage import RequestStage
from router.fleet.standstill import GivenRequest, Standstill
from router.fleet.state_words import health_word, held_word
from router.fleet.worker_link import WorkerLink
from router.fleet.worker_room import WorkerRoom


class Assignment:
    """A request's share of a worker: counted until released, once."""

    __slots__ = (
        "_coming_tokens",
        "_is_probe",
        "_member",
        "_num_seqs",
        "_num_tokens",
        "_prefill_tokens",
        "_request_id",
        "_turn",
        "computed_by",
        "stage",
    )

    def __init__(
        self,
        member: FleetMember,
        request_id: str,
        num_tokens: int,
        prefill_tokens: int | None,
        seats: Seats | None,
    ) -> None:
        self._member: FleetMember | None = member
        self.computed_by: WorkerKey | None = None
        """Another worker that was named to compute its prompt."""
        self.stage = RequestStage.PREFILL
        """Of a request at its decode worker."""
        self._request_id = request_id
        self._num_tokens = num_tokens
        self._prefill_tokens = prefill_tokens or 0
        taken = seats or NO_SEATS
        self._num_seqs, self._coming_tokens = taken.num_seqs, taken.coming_tokens
        self._is_probe = member.cooldown.sent()
        self._turn: GivenRequest | None = None
        if member.standstill is not None and seats is not None:
            self._turn = member.standstill.given(is_elsewhere=prefill_tokens is None)

    @property
    def asked(self) -> RequestShare:
        """What is left of it."""
        return RequestShare(
            self._num_tokens, self._prefill_tokens, self._num_seqs, self._coming_tokens
        )

    def decoded(self) -> None:
        """The worker has made a token itself; idempotent."""
        self.stage = RequestStage.DECODE

    def prefilled(self, left_tokens: int = 0) -> None:
        """The prompt is computed, but for so many tokens at most; idempotent."""
        if self._member is not None:
            left_tokens = min(left_tokens, self._prefill_tokens)
            self._member.pending_prefill_tokens -= self._prefill_tokens - left_tokens
            self._member.pending_prompts -= self._prefill_tokens > 0 and not left_tokens
            self._prefill_tokens = left_tokens
            self._coming_tokens = min(left_tokens, self._coming_tokens)
            if not self._coming_tokens and self.stage is RequestStage.PREFILL:
                is_here = self.computed_by is None
                self.stage = RequestStage.DECODE if is_here else RequestStage.TRANSFER
            if self._turn is not None:
                self._turn.came_back()

    def release(self) -> None:
        """The worker has nothing more to do for the request; idempotent."""
        if self._turn is not None:
            self._turn.left()
        self.prefilled()
        member, self._member = self._member, None
        if member is not None:
            member.num_in_flight -= 1
            member.in_flight_tokens -= self._num_tokens
            if member.given.get(self._request_id) is self:
                del member.given[self._request_id]
            if self._is_probe:
                member.cooldown.given_back()


@dataclass(slots=True, eq=False)
class FleetMember:
    """All calls from the event loop. Decode workers, and prefill workers that pool, have a
    `session` and a `standstill`."""

    state: MemberState
    """The store's record, always its latest."""
    hold: WorkerHold = NO_HOLD
    """What an operator has said of it, always the latest."""
    session: WorkerLink | None = None
    was_cut_off: bool = False
    """Its session was open, and lost, since it joined."""
    follower: asyncio.Task[None] | None = None
    """Follows the worker's KV events."""
    guesses: GuessedCache | None = None
    """Of a worker that has a prefix cache and no events."""
    cooldown: Cooldown = field(default_factory=lambda: Cooldown(time.monotonic))
    """Whether its work fails: requests at a decode worker, handoffs at a prefill worker."""
    slow_start: SlowStart = field(default_factory=SlowStart)
    """How many requests it may have while it is cold."""
    standstill: Standstill | None = None
    """Of one that answers."""
    hits: HitTrust = field(default_factory=HitTrust)
    """Whether what the index believes of its cache comes true."""
    num_in_flight: int = 0
    in_flight_tokens: int = 0
    pending_prefill_tokens: int = 0
    pending_prompts: int = 0
    """Whose tokens these are."""
    given: dict[str, Assignment] = field(default_factory=dict)
    """By request id: all that these numbers are of."""
    elsewhere: GivenElsewhere = NOTHING_ELSEWHERE
    """What other routers have given it; kept by `router.sharing`, where there are others."""
    prompts: PromptTurns = field(default_factory=lambda: PromptTurns(time.monotonic))
    """That it was given to compute."""
    room: WorkerRoom = field(init=False)
    """What it can hold, less what it was promised."""
    key: WorkerKey = field(init=False)
    """The process."""
    pairing_key: str = field(init=False)
    """Two workers pair when these are equal."""
    pool: str = field(init=False)
    """Its name; the role's where it is the role's only one."""
    model_digest: str = field(init=False)
    """Equal in workers of which the same tokens come."""
    kv_bytes_per_token: int = field(init=False)
    """Over all layers; a dtype that is not known counts as one of two bytes."""

    def __post_init__(self) -> None:
        pairing = self.member.pairing
        dtype = pairing.dtype if pairing.dtype in ITEM_BYTES else "bfloat16"
        self.room = WorkerRoom(self.member.max_num_seqs, pairing.block_size_tokens)
        self.key = self.member.key
        self.pairing_key, self.model_digest = pairing.key, pairing.model_digest
        self.pool = self.member.pool or self.member.role.value
        self.kv_bytes_per_token = pairing.kv_shape.token_bytes(dtype=dtype, kv=pairing.kv_dtype)

    @property
    def member(self) -> Member:
        """What it said of itself when it joined, and since."""
        return self.state.member

    @property
    def load(self) -> EngineLoad:
        """As of its last word."""
        return self.state.load

    def has_adapter(self, digest: str) -> bool:
        """By its last beat."""
        return any(item.adapter.digest == digest for item in self.state.adapters)

    @property
    def is_decode(self) -> bool:
        """True for the decode role."""
        return self.member.role is Role.DECODE

    @property
    def answers(self) -> bool:
        """True where requests are sent to it: a decode worker, or a prefill worker that pools."""
        return self.standstill is not None

    @property
    def pooling(self) -> str:
        """The kind of prompts that it pools; empty: none."""
        return "" if self.is_decode else self.member.pooling

    @property
    def is_cut_off(self) -> bool:
        """True where its session is not open; prefill workers that pool nothing have none."""
        return self.session is not None and not self.session.is_open

    @property
    def takes_work(self) -> bool:
        """True when a request could be sent there now."""
        return not (self.is_cut_off or self.state.draining or self.hold.is_on)

    @property
    def is_left(self) -> bool:
        """True when its requests are to go on elsewhere: it is to end, or an operator says so."""
        return self.state.draining or self.hold.kind is HoldKind.DRAIN

    @property
    def is_empty(self) -> bool:
        """True when nobody has anything there any more, by all that is known."""
        load, num_given = self.load, self.num_in_flight + self.elsewhere.num_requests
        return not (num_given or load.num_running or load.num_waiting or load.num_leases)

    def is_drained(self, *, is_silent: bool) -> bool:
        """True once all requests have left that an operator has made leave, by the word of a worker
        that is heard."""
        is_heard = not (is_silent or self.is_cut_off)
        return self.hold.kind is HoldKind.DRAIN and is_heard and self.is_empty

    def state_in_words(self, *, is_silent: bool) -> str:
        """For operators; see `router.fleet.state_words`."""
        if self.state.draining:
            return "draining"
        word = health_word(self.cooldown, is_cut_off=self.is_cut_off, is_silent=is_silent)
        is_drained = self.is_drained(is_silent=is_silent)
        return word if not self.hold.is_on else held_word(word, self.hold, is_drained=is_drained)

    @property
    def has_room(self) -> bool:
        """True when one more request is not too many for a worker that is still cold."""
        return self.slow_start.has_room(self.num_in_flight)

    @property
    def capacity_tokens(self) -> int:
        """The longest prompt and completion that can ever run there."""
        limit = self.member.max_context_tokens
        return min(limit, self._pool_tokens or limit)

    @property
    def pool_tokens(self) -> int:
        """That its pool holds, of one sequence or several; until it has said so, a context."""
        return self._pool_tokens or self.member.max_context_tokens

    @property
    def free_tokens(self) -> int | None:
        """Tokens of one sequence that fit now, evictable blocks included; None before the first
        report."""
        if not self.load.total_blocks:
            return None
        return self.load.room_blocks * self.member.pairing.block_size_tokens

    def note_written(self, num_tokens: int) -> None:
        """A request is over that put the KV of at most so many new tokens into its pool.

        Before its first report the pool is taken to be as large as one request needs it.
        """
        if self.guesses is not None:
            size = self.member.pairing.block_size_tokens
            room_tokens = self._pool_tokens or self.member.max_context_tokens
            self.guesses.wrote(ceil(num_tokens / size), room_blocks=room_tokens // size)

    def assign(
        self,
        request_id: str,
        *,
        num_tokens: int,
        prefill_tokens: int | None,
        seats: Seats | None = None,
    ) -> Assignment:
        """Counts a request; `prefill_tokens` of its prompt are to be computed here, and None of
        them, at a decode worker, where others were named who compute it. `seats`: where it is
        answered; None: elsewhere."""
        self.num_in_flight += 1
        self.in_flight_tokens += num_tokens
        if prefill_tokens is not None:
            self.pending_prefill_tokens += prefill_tokens
            self.pending_prompts += prefill_tokens > 0
        given = Assignment(self, request_id, num_tokens, prefill_tokens, seats)
        self.given[request_id] = given
        return given

    def hear_elsewhere(self, given: GivenElsewhere, seat_part: SeatPart) -> None:
        """What other routers have given it, and how many of its seats are for this one."""
        self.elsewhere = given
        self.room.promised_elsewhere(given, seat_part)

    @property
    def _pool_tokens(self) -> int:
        return self.load.total_blocks * self.member.pairing.block_size_tokens
