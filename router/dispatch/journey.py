"""One request on its way over its workers: what it has got, what that took, and how it goes on.

    sent -> tokens ... -> over
      ^         '- its worker is lost, stands or stops -> from the tokens that the client has -.
      '----------------------------------------------------------------------------------------'

All that a worker must know to go on is the prompt and these tokens. Text, stop strings and counts
are the router's own and notice nothing.
"""

from __future__ import annotations

import msgspec

from cluster.errors import SplitserveError
from cluster.identity import WorkerKey
from router.dispatch.admission_lease import AdmissionLease
from router.dispatch.asked import PROMOTED_AFTER_S
from router.dispatch.attempts import Attempts, MovedOn
from router.dispatch.leaving import Others
from router.dispatch.preemption import GaveWay
from router.dispatch.prompt_charge import PromptCharge
from router.dispatch.request_clock import RequestClock
from router.dispatch.running_choices import RunningChoices
from router.dispatch.running_request import RunningRequest
from router.dispatch.stream import ChoiceTokens, PromptCost, PromptTokens, RoutedRequest
from router.dispatch.time_limits import NothingCame
from router.fairness.shares import Bill
from router.fleet.member import FleetMember
from router.fleet.prompt_turns import Turn
from router.fleet.room_part import RoomPart
from router.fleet.stage import RequestStage
from router.telemetry.decisions import Decision
from router.tenants.priority import Priority


class Journey:
    """From admission to the end; a RunFollower of each worker's part."""

    def __init__(
        self,
        request: RoutedRequest,
        choices: RunningChoices,
        attempts: Attempts,
        clock: RequestClock,
        place: AdmissionLease,
        others: Others,
    ) -> None:
        self.request = request
        """As the next worker gets it."""
        self.choices = choices
        self.attempts = attempts
        self.clock = clock
        self._place = place
        place.part.makes(lambda: choices.num_relayed_tokens)
        self._evacuation = others.evacuation
        self._preemption = others.preemption
        self._limits = request.limits
        self.first_sent = request
        """As its first worker had it."""
        self._run: RunningRequest | None = None
        self._sent = request
        """As the worker has it that has it now."""
        self._has_come = False
        """Its first tokens have, read or not."""
        self._has_token_here = False
        """Of that worker, read by the client."""
        self.cost: PromptCost | None = None
        """Of the worker that the first tokens came from."""
        self._decision: Decision | None = None
        """The last."""
        self._prompt_charge = PromptCharge()
        self._num_attempts = request.attempt
        self.notes: tuple[str, ...] = ()
        """For whoever asks why it went where it went."""

    @property
    def request_id(self) -> str:
        """The router's."""
        return self.request.request_id

    @property
    def priority(self) -> Priority:
        """Its class."""
        return self.request.priority

    @property
    def decision(self) -> Decision:
        """The last, once there is one."""
        assert self._decision is not None
        return self._decision

    @property
    def has_nothing(self) -> bool:
        """True while its client can have nothing of it. Scores of the prompt come before tokens."""
        scores = self.request.sampling.prompt_logprobs is not None
        return not (self._has_come or self.choices.have_begun or scores)

    @property
    def bill(self) -> Bill:
        """What its tenant pays, for all of its places."""
        return self._place.bill

    @property
    def worker(self) -> WorkerKey | None:
        """The decode worker that has it; None: none yet."""
        return self._run.decode if self._run is not None else None

    @property
    def stage(self) -> RequestStage:
        """See UnderWay."""
        return RequestStage.QUEUED if self._run is None else self._run.stage

    @property
    def num_answer_tokens(self) -> int:
        """See UnderWay."""
        return self.choices.num_relayed_tokens

    @property
    def has_moved(self) -> bool:
        """True once another worker goes on with what the client has."""
        return bool(self.request.resume)

    @property
    def longest_tokens(self) -> int:
        """Of its longest choice, that came here."""
        return self.choices.longest_tokens - self.first_sent.num_begun_tokens

    @property
    def part(self) -> RoomPart:
        """Its part of a worker's room."""
        return self._place.part

    def goes_to(
        self, decision: Decision, worker: FleetMember | None, computing: FleetMember | None
    ) -> None:
        """Its workers are chosen, and hold it from now on. A prompt is charged as it is
        expected to be computed, where it is the first time."""
        self.attempts.sent(decision.route.decode)
        if self._place.is_held:
            cached_tokens = decision.cached_at(decision.route.decode)
            self.part.move(None if worker is None else worker.room, cached_tokens)
            turn = None
            if computing is not None and self.part.takes_turns:
                prefill_ms = decision.route.chosen.cost.prefill_ms
                turn = computing.prompts.give(prefill_ms, self.request.tenant)
            self._place.goes_to(turn)
        self._prompt_charge.expect(self.bill, decision)
        self._decision = decision

    def goes_over(self, decision: Decision, part: RoomPart | None, turn: Turn | None) -> None:
        """To workers that have another attempt already, and so a part for it."""
        self.clock.dispatched()
        self._place.goes_over(part, turn)
        self._decision = decision

    def note(self, words: str) -> None:
        """For whoever asks about the decision that stands, or comes."""
        self.notes += (words,)
        self.decision.notes += (words,)

    def close(self) -> None:
        """Nobody asks for it any more; idempotent."""
        self._evacuation.forget(self)
        self._preemption.remove(self)
        self._place.release()
        self._bill_what_was_done()

    def run_by(self, run: RunningRequest, request: RoutedRequest) -> None:
        """A worker has it, as `request` says."""
        self._run, self._sent, self._has_token_here = run, request, False
        self.choices.run_by(run)
        self._preemption.add(self)

    def computed(self, cost: PromptCost) -> None:
        """See RunFollower."""
        self._has_come = True
        self.cost = self.cost or cost
        num_cached = self.cost.cached_tokens
        num_computed = self.first_sent.num_known_tokens - num_cached
        self._place.bill.prompt(computed=num_computed, cached=num_cached)

    def searched(self, num_tokens: int) -> None:
        """See RunFollower. Charged as it goes: no worker makes more than it was asked for."""
        num_tokens = min(num_tokens, self.first_sent.max_stored_tokens)
        self._place.bill.produced(self.choices.searched(num_tokens))

    def has_tokens(self) -> None:
        """See RunFollower."""
        self._has_come = True
        self._preemption.remove(self)
        self._evacuation.has_arrived(self)
        self._place.computed()

    def ended(self, error: SplitserveError | None) -> None:
        """See RunFollower. What goes on elsewhere keeps its place in the router."""
        self._preemption.remove(self)
        if error is not None and not self.choices.are_over and self._run is not None:
            self.attempts.judge(self._run.decode, error)
        if error is None or self.choices.are_over or not self.attempts.may_go_on(error):
            self._place.release()

    def take(self, event: PromptTokens | ChoiceTokens) -> bool:
        """Has what a worker sent counted; False when nobody wants it any more."""
        if isinstance(event, PromptTokens):
            return True
        if not self.choices.take(event):
            return False
        if event.tokens:
            self._note_tokens(event.choice, len(event.tokens))
        elif event.pooled is not None:
            self.clock.tokens(0, 1)  # all that its client gets
        return True

    def may_move(self) -> bool:
        """See Evacuee."""
        if self._run is None or not self._run.is_caught_up or self.choices.are_over:
            return False
        return self.attempts.may_move(self._sent, self.choices.longest_begun_tokens)

    def move(self) -> None:
        """See Evacuee."""
        if self._run is not None:
            self._run.leave(MovedOn())

    def may_give_way(self) -> bool:
        """See Preemptible."""
        is_there = self._run is not None and self._place.is_held
        may = is_there and self.has_nothing and self.attempts.may_give_way
        return may and self._limits.clock() - self._limits.arrived_s < PROMOTED_AFTER_S

    def give_way(self, to: Priority) -> None:
        """See Preemptible."""
        assert self._run is not None
        worker, waited_ms = self._run.decode.worker_id, self.clock.since_dispatch_ms
        note = f"gave its place at {worker} to class {to} after {waited_ms:.0f} ms"
        self.notes += (note,)
        self._bill_what_was_done()
        self.attempts.gave_way(self._run.decode)
        self._run.leave(GaveWay(note))
        self._place.release()

    def comes_again(self, place: AdmissionLease) -> None:
        """It has another place, after it gave way."""
        self._place = place
        place.part.makes(lambda: self.choices.num_relayed_tokens)
        self.request = self.another_attempt()

    def another_attempt(self) -> RoutedRequest:
        """It, by a name that no worker has heard."""
        self._num_attempts += 1
        return msgspec.structs.replace(self.request, attempt=self._num_attempts)

    def go_on(self, worker: WorkerKey, error: SplitserveError) -> None:
        """The next worker gets what is left of it. Raises why there is none."""
        goes_on = self._place.is_held and self.attempts.may_go_on(error)
        cause = self.attempts.cause_of(error)
        self._evacuation.has_left(self)
        self.attempts.failed(worker, error)
        if not goes_on:
            raise self.attempts.final(error)
        if self.choices.have_begun:
            self._resume(worker, cause)
        elif isinstance(error, NothingCame):
            again = self._limits.begun_again()
            self.request = msgspec.structs.replace(self.request, limits=again)

    def _bill_what_was_done(self) -> None:
        """A prompt that was not computed to its end is charged as far as it can have been."""
        if self._decision is None or (self.cost is None and not self.clock.has_token):
            self._prompt_charge.left(self.bill, self._decision, self.clock.since_dispatch_ms)

    def _note_tokens(self, choice: int, num_tokens: int) -> None:
        if not self.clock.has_token:
            self.attempts.begun()
        self.clock.tokens(choice, num_tokens)
        if self.request.sampling.beams is None:
            self._place.bill.produced(num_tokens)
        else:
            self.searched(self._sent.beam_tokens_of(self.choices.num_relayed_tokens))
        if not self._has_token_here:
            self._has_token_here = True
            self._tell_keeper()
            self._evacuation.stays(self)

    def _tell_keeper(self) -> None:
        """Of an answer that begins or goes on here. Its length is what its first worker has room
        for, if nobody asked for another."""
        num_cached = 0 if self.cost is None else self.cost.cached_tokens
        part = self.attempts.part_of_worker(num_cached, self._sent.adapter_digest)
        if (keeper := self.request.keeper) is not None and part is not None:
            keeper.begun(part, self._sent.sampling.max_tokens)

    def _resume(self, worker: WorkerKey, cause: str) -> None:
        """A length that nobody asked for is what the first worker had room for."""
        self.request = self._sent.going_on(self.choices.begun, self._limits.going_on())
        self.clock.interrupted()
        num_tokens = self.request.num_begun_tokens
        self.notes += (f"goes on after {num_tokens} tokens of {worker.worker_id}: {cause}",)
