"""One Submit of a router, until its one Ended.

    LOCAL    engine events -> frames of the session
    REMOTE   the same, and a handoff task beside it until the prompt's KV is here

A cancellation, a broken session and a deadline all end in the engine's RequestEnded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from cluster.adapter import check_digest
from cluster.deadline import Deadline
from cluster.errors import (
    AdapterGone,
    Cancelled,
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    OutOfBlocks,
    SplitserveError,
    from_code,
    status_of,
)
from cluster.generation import Timing, Usage
from cluster.identity import OWNER_BYTES, WorkerKey
from cluster.logs import bind_request, get_logger
from cluster.process.background import Background
from cluster.process.lifespan import WorkLease
from cluster.wire import begun_from_wire, sampling_from_wire
from cluster.worker_identity import WorkerIdentity
from cluster.world import World
from decode_worker.handoff import Handoff, HandoffState, HandoffTools
from decode_worker.handoff_plan import HandoffPlan
from decode_worker.remote_prompt import RemotePrompt
from decode_worker.remote_scores import RemoteScores
from decode_worker.request_spans import DecodedRequest, DecodeTrace
from decode_worker.session_outlet import SessionOutlet
from decode_worker.stage_times import StageTimes
from engine.contract.commands import Cancel, Finish, GenerateRequest, PrefillMode
from engine.contract.messages import (
    Fetched,
    PromptComputed,
    PromptScored,
    RequestEnded,
    Reserved,
    Searched,
    Started,
    TokenEvent,
)
from protos import worker_pb2
from worker.engine.listeners import RequestEvent
from worker.exchange.prefill_peers import PrefillPeers
from worker.exchange.prefill_target import PrefillTarget
from worker.role import RunningWorker

FAULTS_OF_THE_REQUEST = (AdapterGone, Cancelled, InvalidRequest, OutOfBlocks)
"""Say nothing about the prefill worker where they happened; nor does DeadlineExceeded, when the
request's own deadline has passed."""
_DEADLINE_SLACK_S = 0.05
"""Two processes see the same deadline pass up to that far apart."""
_log = get_logger("decode_worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeParts:
    """What requests work with, the same for all of them."""

    worker: RunningWorker
    peers: PrefillPeers
    background: Background
    progress_timeout_s: float
    """Of a prefill worker."""
    world: World

    @property
    def identity(self) -> WorkerIdentity:
        """What a router must have meant."""
        return WorkerIdentity(self.worker.key, self.worker.pairing)


class DecodeRequest:
    """The engine's listener for one request. `on_end` is called once, after Ended was added."""

    def __init__(
        self,
        submit: worker_pb2.Submit,
        parts: DecodeParts,
        outlet: SessionOutlet,
        lease: WorkLease,
        on_end: Callable[[], None],
    ) -> None:
        self.request_id = submit.request_id
        self._parts = parts
        self._engine = parts.worker.engine
        self._outlet = outlet
        self._lease = lease
        self._on_end = on_end
        self._times = StageTimes(parts.world.clock)
        self._trace = DecodeTrace.of(submit, parts.worker.tracing, parts.world.clock)
        self._deadline = Deadline.after(submit.timeout_ms / 1e3, parts.world.clock)
        self._request = _to_engine(submit, self._engine.name_for(submit.request_id), self._deadline)
        is_remote = self._request.mode is PrefillMode.REMOTE
        self._handoff = self._plan_handoff(submit) if is_remote else None
        self._task: asyncio.Task[None] | None = None
        self._fault: SplitserveError | None = None

    def start(self) -> None:
        """Submits to the engine; with prefill workers to ask, starts the handoff."""
        with bind_request(self.request_id):
            if self._handoff is not None:
                name = f"handoff of {self.request_id}"
                self._task = self._parts.background.once(name, self._hand_off(self._handoff))
            try:
                self._engine.submit(self._request, self)
            except BaseException:
                if self._task is not None:
                    self._task.cancel()  # it would wait for the engine's blocks for ever
                raise

    def cancel(self) -> None:
        """The router wants no more. The prefill stream is closed at once."""
        if self._task is not None:
            self._task.cancel()
        self._engine.send(Cancel(self._request.request_id))

    def finish(self, choices: list[int]) -> None:
        """The router has seen the end of these choices; with the last one the engine ends it."""
        self._engine.send(Finish(self._request.request_id, choices))

    def receive(self, event: RequestEvent) -> None:
        """See RequestListener."""
        match event:
            case TokenEvent():
                self._outlet.add_token(self.request_id, event)
            case PromptScored():
                self._outlet.add_prompt(self.request_id, event)
            case PromptComputed():
                self._note_computed(event)
            case Searched():
                self._outlet.add_searched(self.request_id, event.num_tokens)
            case Reserved() if self._handoff is not None:
                self._handoff.reserved(event)
            case Fetched() if self._handoff is not None:
                self._take_fetched(event, self._handoff)
            case Started():
                pass  # the engine's last word has the times of a prompt that it computes
            case RequestEnded():
                self._end(event)
            case _:
                raise InternalError(f"a decode request got a {type(event).__name__}")

    def _note_computed(self, event: PromptComputed) -> None:
        self._times.computed()
        source = self._times.source
        cached_tokens = event.cached_tokens if source is None else source.cached_tokens
        timing, stages = self._timing(event), self._times.stages()
        self._outlet.add_computed(self.request_id, cached_tokens, timing, stages)

    def _timing(self, event: PromptComputed | RequestEnded) -> Timing:
        return self._times.timing(
            event,
            worker_id=self._parts.worker.key.worker_id,
            kv_transport=self._engine.kv_transport,
        )

    def _take_fetched(self, event: Fetched, handoff: Handoff) -> None:
        self._times.fetched(event)
        if not event.error:
            self._parts.worker.metrics.transferred(event.num_bytes, event.duration_ms)
        handoff.fetched(event)

    def _plan_handoff(self, submit: worker_pb2.Submit) -> Handoff:
        plan = HandoffPlan(
            request_id=submit.request_id,
            request=self._request,
            deadline=self._deadline,
            targets=tuple(PrefillTarget.from_wire(target) for target in submit.prefill),
            progress_timeout_s=self._parts.progress_timeout_s,
            vocab_size=self._parts.worker.ready.vocab_size,
            trace=self._trace,
        )
        tools = HandoffTools(
            peers=self._parts.peers,
            times=self._times,
            world=self._parts.world,
            on_source=self._note_source,
        )
        tell = partial(self._outlet.add_prompt, self.request_id)
        scores = RemoteScores.of(self._request, vocab_size=plan.vocab_size, tell=tell)
        prompt = RemotePrompt(self._request.request_id, self._engine.send, self._times, scores)
        return Handoff(plan, prompt, tools)

    def _note_source(self, worker: WorkerKey, error: SplitserveError | None) -> None:
        if error is not None:
            self._parts.worker.metrics.transfer_failed(status_of(error).code)
        if not self._is_own_fault(error):
            self._outlet.add_handoff(worker, failed=error is not None)
            self._outlet.flush()

    def _is_own_fault(self, error: SplitserveError | None) -> bool:
        if isinstance(error, DeadlineExceeded):
            return self._deadline.remaining_s < _DEADLINE_SLACK_S
        return isinstance(error, FAULTS_OF_THE_REQUEST)

    async def _hand_off(self, handoff: Handoff) -> None:
        """A handoff that fails by a bug of ours ends its request, not the others."""
        try:
            await handoff.run()
        except Exception:
            self._fault = InternalError("the handoff of this request failed; see the worker's log")
            self._engine.send(Cancel(self._request.request_id))
            raise

    def _end(self, event: RequestEnded) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._handoff is not None and self._handoff.is_reading:
            self._engine.send(Cancel(self._request.request_id))  # for the intake: stop reading
        error = self._fault or (
            from_code(event.error_code, event.error_message) if event.error_code else None
        )
        usage = self._usage(event)
        timing = self._timing(event)
        stages = self._times.stages()
        self._outlet.add_ended(
            self.request_id, usage=usage, timing=timing, stages=stages, error=error
        )
        self._account(usage, timing, error)
        if self._trace is not None:
            num_blocks = self._times.kv_blocks
            self._trace.over(DecodedRequest(stages, usage, timing, error, num_blocks))
        self._lease.release()
        self._on_end()

    def _usage(self, event: RequestEnded) -> Usage:
        """With a prompt from elsewhere, what was cached there counts: the rest was computed."""
        source = self._times.source
        if source is None:
            return event.usage
        return msgspec.structs.replace(event.usage, cached_tokens=source.cached_tokens)

    def _account(self, usage: Usage, timing: Timing, error: SplitserveError | None) -> None:
        metrics = self._parts.worker.metrics
        outcome = status_of(error).code if error else "ok"
        metrics.request_ended(outcome, usage, timing if usage.completion_tokens else None)
        handoff = _handoff_outcome(self._handoff, error) if self._handoff else "none"
        if self._handoff is not None:
            metrics.handoff_ended(handoff)
        with bind_request(self.request_id):
            _log.info(
                "request ended",
                outcome=outcome,
                error=error.message if error else None,
                handoff=handoff,
                prefill_worker=timing.prefill_worker or None,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                cached_tokens=usage.cached_tokens,
                queue_ms=round(timing.queue_ms, 2),
                prefill_ms=round(timing.prefill_ms, 2),
                kv_ms=round(timing.kv_ms, 2),
                kv_visible_ms=round(timing.kv_visible_ms, 2),
                kv_bytes=timing.kv_bytes,
            )


def _handoff_outcome(handoff: Handoff, error: SplitserveError | None) -> str:
    if handoff.state is HandoffState.LOCAL:
        return "local"
    if error is not None:
        return "cancelled"
    return "next" if handoff.num_failures else "first"


def _to_engine(submit: worker_pb2.Submit, engine_id: str, deadline: Deadline) -> GenerateRequest:
    """Several answers that go on are computed here, whoever is proposed: they have but the prompt
    in common."""
    sampling = sampling_from_wire(submit.sampling)
    is_remote = bool(submit.prefill) and len(submit.resume) <= 1
    return GenerateRequest(
        request_id=engine_id,
        token_ids=list(submit.token_ids),
        sampling=sampling,
        cache_root=submit.cache_root,
        mode=PrefillMode.REMOTE if is_remote else PrefillMode.LOCAL,
        timeout_ms=deadline.remaining_ms,
        asked_s=submit.asked_s if submit.HasField("asked_s") else None,
        resume=[begun_from_wire(begun) for begun in submit.resume],
        prediction=list(submit.prediction),
        adapter=check_digest(submit.adapter) if submit.adapter else "",
        owner=submit.owner[:OWNER_BYTES],
    )
