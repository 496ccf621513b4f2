"""The workers of this router, kept in step with the membership store.

    joined -> index slot, event follower, session (decode)  -> takes work
    silent, but its session is open -> stays, and gets new work only when nobody else does
    left, expired, replaced -> session closed (its requests end with WorkerLost), follower
                               stopped, index and estimates forgotten: all in the same call

A prefill and a decode worker whose pairings differ are both members and never meet; said once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from cluster.deadline import Deadline
from cluster.errors import NoWorker, SplitserveError
from cluster.identity import Role, WorkerKey
from cluster.logs import get_logger
from cluster.membership.hold import WorkerHold
from cluster.membership.member import MemberState
from cluster.membership.store import ChangeKind, MembershipChange, MembershipStore
from cluster.process.background import Background
from cluster.process.own_lateness import SeenTimeout
from router.fleet.changes import Changes
from router.fleet.cooldown import Cooldown
from router.fleet.event_followers import EventFollowers
from router.fleet.fleet_time import FleetTime
from router.fleet.hit_check import HitCheck
from router.fleet.holds import Holds
from router.fleet.member import FleetMember
from router.fleet.member_news import PARTING, note_change, note_hold, note_session
from router.fleet.mismatches import Mismatches
from router.fleet.model_choice import ModelChoice
from router.fleet.prompt_turns import PromptTurns
from router.fleet.sessions import Sessions
from router.fleet.standstill import Standstill
from router.fleet.verdicts import Verdicts
from router.fleet.who_answers import WhoAnswers
from router.fleet.worker_link import LinkEvents
from router.pricing.estimates import Estimates
from router.telemetry.diary import Diary, Happening
from router.telemetry.work_ledger import WorkLedger

NO_WORKER_GRACE_S = 3.0
"""How long a request waits for a decode worker: longer than a restarted one takes to join again."""

_log = get_logger("fleet")


class Fleet:
    """All calls from the event loop. `close` at shutdown: of sessions and followers too."""

    def __init__(
        self,
        store: MembershipStore,
        estimates: Estimates,
        background: Background,
        *,
        followers: EventFollowers,
        sessions: Sessions,
        time: FleetTime,
    ) -> None:
        self._store = store
        self._estimates = estimates
        self._background = background
        self._followers = followers
        self._sessions = sessions
        self._time = time
        self._members: dict[WorkerKey, FleetMember] = {}
        self._who_answers = WhoAnswers(self._members.values)
        self.diary = Diary()
        self._verdicts = Verdicts(self.find, self.with_role, self.diary)
        self.holds = Holds(self._on_hold, time.rest_clock)
        self._mismatches = Mismatches()
        self._choice = ModelChoice()
        self._is_closed = False
        self.changes = Changes()
        self.ledger = WorkLedger(store)
        self.hits = HitCheck(self.find, followers, time.rest_clock)
        store.watch(self._on_change)

    @property
    def members(self) -> list[FleetMember]:
        """Everyone, in the order of joining."""
        return list(self._members.values())

    @property
    def mismatches(self) -> tuple[str, ...]:
        """Why some prefill and decode workers are never paired, in words."""
        return self._mismatches.texts

    def find(self, key: WorkerKey) -> FleetMember | None:
        """None when that process is not a member."""
        return self._members.get(key)

    def with_role(self, role: Role) -> list[FleetMember]:
        """Members of one role, whatever their state."""
        return [item for item in self._members.values() if item.member.role is role]

    def ready(
        self, role: Role, *, without: frozenset[WorkerKey] = frozenset(), pooling: str = ""
    ) -> list[FleetMember]:
        """Members of one role that take work now, `without` those that a request must not meet.
        `pooling`: of prefill workers those that pool so, and answer by that.

        One that answers counts when there is no other, though it rests or is silent: nothing is
        better than what may fail. Without prefill workers the decode workers do their part.
        """
        open_ones = [item for item in self.open(role, pooling) if item.key not in without]
        open_ones = self._choice.of(open_ones, self._members.values())
        trusted = [i for i in open_ones if i.cooldown.admits and not self.is_silent(i)]
        return trusted or (open_ones if pooling or role is Role.DECODE else [])

    def well(self, *, without: frozenset[WorkerKey] = frozenset()) -> list[FleetMember]:
        """Decode workers that take work, and have neither failed lately nor fallen silent."""
        open_ones = (item for item in self.open(Role.DECODE) if item.key not in without)
        return [i for i in open_ones if i.cooldown.is_trusted and not self.is_silent(i)]

    def open(self, role: Role, pooling: str = "") -> list[FleetMember]:
        """Members of one role that could be sent something, trusted or not; `pooling` as above."""
        found = [item for item in self.with_role(role) if item.takes_work]
        return [item for item in found if item.pooling == pooling] if pooling else found

    def served(self, role: Role, pooling: str = "") -> list[FleetMember]:
        """Of these, those of the model that new requests go to."""
        return self._choice.of(self.open(role, pooling), self._members.values())

    @property
    def chosen_model(self) -> str | None:
        """Digest of the one that new requests go to."""
        return self._choice.choose(self._members.values())

    def state_of(self, item: FleetMember) -> str:
        """For operators; see FleetMember.state_in_words."""
        return item.state_in_words(is_silent=self.is_silent(item))

    def why_not_ready(self) -> str | None:
        """None when a request that came now could be served; else what is missing, in words."""
        return self._who_answers.why_not_ready()

    async def wait_for_decode(self, deadline: Deadline, pooling: str = "") -> None:
        """Returns once some decode worker takes work, or a prefill worker that pools so. Raises
        NoWorker after a short grace."""
        await self.wait_until(lambda: self._who_answers.why_none(pooling) is None, deadline)
        if (reason := self._who_answers.why_none(pooling)) is not None:
            raise NoWorker(f"{reason}; start one, or try again later")

    async def wait_until(self, is_there: Callable[[], bool], deadline: Deadline) -> None:
        """Returns once that is so, a short grace has passed or the router stops."""
        if is_there():
            return
        with suppress(TimeoutError):
            async with deadline.bound(), SeenTimeout(NO_WORKER_GRACE_S, deadline.clock):
                await self.changes.until(lambda: self._is_closed or is_there())

    def lives(self, state: MemberState) -> bool:
        """True for a silent decode worker whose session, which ends with the process or the way to
        it, is open: its requests go on."""
        item = self._members.get(state.member.key)
        return item is not None and item.is_decode and not item.is_cut_off

    def is_cut_off(self, key: WorkerKey) -> bool:
        """See FleetMember.is_cut_off; of a process that is no member, False."""
        item = self._members.get(key)
        return item is not None and item.is_cut_off

    def note_handoff(self, key: WorkerKey, failed: bool, *, reader: WorkerKey) -> None:
        """See Verdicts.handoff."""
        if failed and key in self._members and reader in self._members:
            self._estimates.link_totals.failed((key, reader))
        self._verdicts.handoff(key, failed, reader=reader)

    def note_request(self, key: WorkerKey, *, failed: bool) -> None:
        """See Verdicts.request."""
        self._verdicts.request(key, failed=failed)

    def note_good_end(self, key: WorkerKey) -> None:
        """See Verdicts.good_end."""
        self._verdicts.good_end(key)

    async def close(self) -> None:
        """Ends every session and follower, and every wait for a worker; idempotent."""
        self._is_closed = True
        for key in list(self._members):
            self._remove(key, "is disconnected: the router stops")
        self.changes.announce()
        await self._sessions.all_closed()
        await self._followers.close()

    def is_silent(self, item: FleetMember) -> bool:
        """True of one that has not been heard for as long as its lease."""
        return self._time.lease.has_run_out(item.state.heard_s)

    def _on_change(self, change: MembershipChange) -> None:
        member, state = change.member, change.state
        if change.kind is ChangeKind.REPORTED:
            self._note_state(state)
            return
        _log.info(
            f"worker {change.kind}",
            worker_id=member.worker_id,
            role=member.role.value,
            address=member.address,
        )
        note_change(self.diary, change)
        if change.kind is ChangeKind.JOINED:
            self._add(state)
        else:
            self._remove(member.key, f"has {PARTING[change.kind]}")
        self.changes.announce()

    def _note_state(self, state: MemberState) -> None:
        if (item := self._members.get(state.member.key)) is None:
            return
        was, item.state = item.state, state
        item.room.heard(state.load)
        if item.standstill is not None:
            item.standstill.heard(state.load)
        self._estimates.heard(item.key, state.load)
        if state.draining and not was.draining:
            self.diary.note(Happening.ENDING, item.key.worker_id, "it was told to end")
        if state.offer != was.offer:
            self.changes.announce()

    def _on_hold(self, worker_id: str, hold: WorkerHold) -> None:
        """Of whichever process has that id."""
        held = [item for item in self._members.values() if item.key.worker_id == worker_id]
        for item in held:
            before, item.hold = item.hold, hold
            if hold.kind is not before.kind:
                note_hold(self.diary, worker_id, hold)
                _log.info("a worker is held", worker_id=worker_id, hold=hold.kind or "no more")
            self.changes.announce()

    def _add(self, state: MemberState) -> None:
        member = state.member
        clock = self._time.rest_clock
        standstill = Standstill(clock) if self._who_answers.joins(member) else None
        cooldown, prompts = Cooldown(clock), PromptTurns(clock)
        item = FleetMember(state, cooldown=cooldown, standstill=standstill, prompts=prompts)
        item.hold = self.holds.of(member.worker_id)
        self._mismatches.note(member, (other.member for other in self._members.values()))
        self._members[member.key] = item
        self._learn_of_cache(item)
        if standstill is not None:
            item.session = self._sessions.open(member, self._events_of(member.key, standstill))

    def _events_of(self, key: WorkerKey, standstill: Standstill) -> LinkEvents:
        return LinkEvents(
            on_load=partial(self._store.report, key),
            on_work=standstill.worked,
            on_open=partial(self._note_session, key, ""),
            on_lost=partial(self._note_session, key),
            on_handoff=partial(self.note_handoff, reader=key),
            on_doubt=partial(self.hits.doubted, key),
            on_mismatch=lambda error: self._turn_away(key, error),
        )

    def _note_session(self, key: WorkerKey, lost_because: str) -> None:
        """It is open, or lost; of one that opens for the first time the join has said enough."""
        if (item := self._members.get(key)) is not None:
            note_session(self.diary, item, lost_because)
        if not lost_because:
            self.changes.announce()

    def _learn_of_cache(self, item: FleetMember) -> None:
        """By its events, else by what it serves; one that keeps nothing is unknown to the index."""
        if item.member.prefix_cache_off:
            return
        if (source := self._sessions.events_of(item.member)) is not None:
            item.follower = self._followers.follow_engine(item.member, source)
        elif item.member.kv_events_address:
            item.follower = self._followers.follow(item.member)
        else:
            item.guesses = self._followers.guess(item.member)

    def _turn_away(self, key: WorkerKey, error: SplitserveError) -> None:
        """Somebody else answers at this member's address: it is out until it joins anew."""
        _log.error(
            "another process answers at a worker's address; the worker is removed",
            worker_id=key.worker_id,
            reason=error.message,
        )
        self._background.once(f"turn-away-{key.worker_id}", self._store.leave(key))

    def _remove(self, key: WorkerKey, reason: str) -> None:
        if (item := self._members.pop(key, None)) is None:
            return
        if item.follower is not None:
            item.follower.cancel()  # at once: it must not speak of a worker that is forgotten
        self._followers.forget(key)
        self._verdicts.forget(key)
        self.hits.forget(key)
        self._estimates.forget(key)
        self._mismatches.forget(key.worker_id)
        if item.session is not None:
            self._sessions.close(item.session, key, reason)
