"""A router with workers that compute in virtual time: real admission, routing and sessions.

Prefill workers compute one prompt after the other. Decode workers make a token for all that run in
each step, as many as they have seats for; the rest waits there. Nobody knows of classes or tenants.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from cluster.config import RouterOptions
from cluster.dial.dialer import Dialer, SessionLink
from cluster.errors import SplitserveError
from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.membership.member import Member
from cluster.process.background import cancel
from cluster.sampling import SamplingParams
from cluster.wire import identity_to_wire, load_to_wire
from cluster.worker_identity import WorkerIdentity
from cluster.world import World
from protos import generation_pb2, worker_pb2
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.dispatch.stream import ChoiceTokens, RoutedRequest
from router.dispatch.time_limits import TimeLimits
from router.tenants.priority import Priority
from tests.router.planes import PAIRING, member_of

TOKEN_MS = 0.1
"""Of a prompt."""
CHUNK_TOKENS = 512
STEP_MS = 20.0
HANDOFF_MS = 5.0
NUM_SEATS = 16
NUM_BLOCKS = 100_000


class SimulatedPrefill:
    """One prompt after the other."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.waiting = deque[tuple[int, asyncio.Future[None]]]()
        self.wakes = asyncio.Event()
        self.slowness = 1.0
        """Times what it says that a token takes."""

    def num_cached(self, token_ids: Sequence[int]) -> int:
        """Of a prompt that comes now; nothing is, unless a test says otherwise."""
        return 0

    async def computed(self, num_tokens: int) -> None:
        done = asyncio.get_running_loop().create_future()
        self.waiting.append((num_tokens, done))
        self.wakes.set()
        await done

    async def run(self) -> None:
        while True:
            await self.wakes.wait()
            self.wakes.clear()
            while self.waiting:
                num_tokens, done = self.waiting[0]
                while num_tokens > 0 and not done.done():  # it is let be when nobody wants it
                    chunk_ms = min(CHUNK_TOKENS, num_tokens) * TOKEN_MS * self.slowness
                    await asyncio.sleep(chunk_ms / 1000)
                    num_tokens -= CHUNK_TOKENS
                self.waiting.popleft()
                if not done.done():
                    done.set_result(None)


@dataclass(slots=True, eq=False)
class _Sequence:
    submit: worker_pb2.Submit
    num_tokens: int = 0
    num_cached: int = 0
    prefill_ms: float = 0.0
    task: asyncio.Task[None] | None = None


class SimulatedDecode(SessionLink):
    """Its seats and its steps; prompts are computed where the router says."""

    def __init__(self, member: Member, prefill: dict[str, SimulatedPrefill]) -> None:
        self.member = member
        self._prefill = prefill
        self.own = SimulatedPrefill(member)
        self._frames: asyncio.Queue[worker_pb2.WorkerFrame] = asyncio.Queue()
        self._sequences: dict[str, _Sequence] = {}
        self._running: list[_Sequence] = []
        self._waiting: deque[_Sequence] = deque()
        self.most_here = 0

    async def read(self) -> worker_pb2.WorkerFrame | None:
        return await self._frames.get()

    async def write(self, message: worker_pb2.RouterMessage) -> None:
        if message.HasField("open"):
            opened = identity_to_wire(WorkerIdentity(self.member.key, PAIRING))
            self._frames.put_nowait(worker_pb2.WorkerFrame(opened=opened, load=self._load()))
        elif message.HasField("submit"):
            sequence = _Sequence(message.submit)
            self._sequences[message.submit.request_id] = sequence
            self.most_here = max(self.most_here, len(self._sequences))
            sequence.task = asyncio.create_task(self._begin(sequence))
        elif message.HasField("cancel"):
            sequence = self._sequences.pop(message.cancel.request_id, None)
            if sequence is not None:
                await cancel([sequence.task])
                self._running = [each for each in self._running if each is not sequence]

    async def close(self) -> None:
        await cancel([each.task for each in self._sequences.values()])

    async def run(self) -> None:
        while True:
            await asyncio.sleep(STEP_MS / 1000)
            while self._waiting and len(self._running) < NUM_SEATS:
                self._running.append(self._waiting.popleft())
            frame = worker_pb2.WorkerFrame(load=self._load())
            for sequence in list(self._running):
                self._make_token(frame, sequence)
            self._frames.put_nowait(frame)

    async def _begin(self, sequence: _Sequence) -> None:
        submit, loop = sequence.submit, asyncio.get_running_loop()
        begun_s = loop.time()
        worker = self._prefill[submit.prefill[0].worker_id] if submit.prefill else self.own
        sequence.num_cached = worker.num_cached(submit.token_ids)
        num_tokens = len(submit.token_ids) - sequence.num_cached
        await worker.computed(num_tokens)
        sequence.prefill_ms = num_tokens * TOKEN_MS
        await asyncio.sleep(HANDOFF_MS / 1000)
        took = generation_pb2.Timing(
            prefill_ms=sequence.prefill_ms,
            queue_ms=max(0.0, (loop.time() - begun_s) * 1000 - sequence.prefill_ms - HANDOFF_MS),
            prefill_worker=worker.member.worker_id,
        )
        computed = worker_pb2.PromptComputed(request_id=submit.request_id, timing=took)
        frame = worker_pb2.WorkerFrame(computed=[computed])
        self._make_token(frame, sequence)
        self._frames.put_nowait(frame)
        if submit.request_id in self._sequences:
            self._waiting.append(sequence)

    def _make_token(self, frame: worker_pb2.WorkerFrame, sequence: _Sequence) -> None:
        submit = sequence.submit
        sequence.num_tokens += 1
        is_last = sequence.num_tokens >= submit.sampling.max_tokens
        frame.tokens.add(
            request_id=submit.request_id,
            tokens=[generation_pb2.GeneratedToken(token_id=5)],
            finish_reason=generation_pb2.FINISH_REASON_LENGTH if is_last else 0,
        )
        if is_last:
            usage = generation_pb2.Usage(
                prompt_tokens=len(submit.token_ids),
                completion_tokens=sequence.num_tokens,
                cached_tokens=sequence.num_cached,
            )
            names = [each.worker_id for each in submit.prefill] or [self.member.worker_id]
            timing = generation_pb2.Timing(prefill_ms=sequence.prefill_ms, prefill_worker=names[0])
            frame.ended.add(request_id=submit.request_id, usage=usage, timing=timing)
            self._sequences.pop(submit.request_id, None)
            self._running = [each for each in self._running if each is not sequence]

    def _load(self) -> worker_pb2.EngineLoad:
        return load_to_wire(
            EngineLoad(
                total_blocks=NUM_BLOCKS,
                free_blocks=NUM_BLOCKS,
                num_running=len(self._running),
                num_waiting=len(self._waiting),
                decode_step_ms=STEP_MS,
                decode_row_ms=0.01,
                prefill_token_ms=TOKEN_MS,
            )
        )


class SimulatedLinks(Dialer):
    """Of one router, to decode workers of its own."""

    def __init__(self, decode: list[SimulatedDecode]) -> None:
        self._by_address = {each.member.address: each for each in decode}

    def session(self, address: str) -> SessionLink:
        return self._by_address[address]


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Of one request."""

    tenant: str
    priority: Priority
    came_s: float
    took_s: float
    """Until it was over, or refused."""
    ttft_s: float | None = None
    num_tokens: int = 0
    error: SplitserveError | None = None


@dataclass(slots=True)
class SimulatedFleet:
    """Asks, and notes what came of it."""

    plane: FleetPlane
    decode: list[SimulatedDecode]
    chance: Random
    outcomes: list[Outcome] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _num_asked: int = 0

    def ask(
        self,
        tenant: str,
        *,
        prompt_tokens: int = 1000,
        answer_tokens: int = 10,
        timeout_s: float = 30.0,
        weight: float = 1.0,
        priority: Priority = Priority.STANDARD,
        salt: str = "",
    ) -> None:
        loop = asyncio.get_running_loop()
        self._num_asked += 1
        request = RoutedRequest(
            request_id=f"{tenant}-{self._num_asked}",
            token_ids=list(range(first := self.chance.randrange(2**20), first + prompt_tokens)),
            sampling=SamplingParams(max_tokens=answer_tokens, seed=1),
            tenant=tenant,
            weight=weight,
            priority=priority,
            tenant_salt=salt or tenant,
            limits=TimeLimits(
                arrived_s=loop.time(),
                first_token_s=timeout_s,
                between_tokens_s=60.0,
                clock=loop.time,
            ),
        )
        self._tasks.append(asyncio.create_task(self._run(request)))

    async def ask_at_random(
        self,
        tenant: str,
        per_s: float,
        seconds: float,
        *,
        num_salts: int = 1,
        prompts: range = range(600, 1400),
        **asked: object,
    ) -> None:
        """As strangers do: at no pace, and with prompts of any length of these."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while True:
            await asyncio.sleep(self.chance.expovariate(per_s))
            if loop.time() >= end_s:
                return
            salt = f"{tenant}-{self.chance.randrange(num_salts)}"
            prompt_tokens = self.chance.choice(prompts)
            self.ask(tenant, salt=salt, prompt_tokens=prompt_tokens, **asked)  # type: ignore[arg-type]

    async def all_over(self) -> None:
        await asyncio.gather(*self._tasks)

    async def _run(self, request: RoutedRequest) -> None:
        clock = request.limits.clock
        outcome = Outcome(
            tenant=request.tenant, priority=request.priority, came_s=clock(), took_s=0.0
        )
        try:
            async with aclosing(self.plane.source.generate(request)) as events:
                async for event in events:
                    if isinstance(event, ChoiceTokens):
                        outcome.num_tokens += len(event.tokens)
                        if outcome.ttft_s is None:
                            outcome.ttft_s = clock() - outcome.came_s
        except SplitserveError as error:
            outcome.error = error
        outcome.took_s = clock() - outcome.came_s
        self.outcomes.append(outcome)


Play = Callable[[SimulatedFleet], Awaitable[None]]


@asynccontextmanager
async def simulated_fleet(
    *, num_prefill: int = 4, num_decode: int = 4, seed: int = 1, **options: object
) -> AsyncIterator[SimulatedFleet]:
    """Inside of `run_virtually`."""
    loop, chance = asyncio.get_running_loop(), Random(seed)
    prefill = {
        f"prefill-{at}": SimulatedPrefill(
            member_of(Role.PREFILL, f"prefill-{at}", max_context_tokens=100_000)
        )
        for at in range(num_prefill)
    }
    decode = [
        SimulatedDecode(
            member_of(
                Role.DECODE,
                f"decode-{at}",
                address=f"127.0.0.1:{100 + at}",
                max_context_tokens=100_000,
                max_num_seqs=NUM_SEATS,
                prefix_cache_off=True,
            ),
            prefill,
        )
        for at in range(num_decode)
    ]
    world = World(dialer=SimulatedLinks(decode), clock=loop.time, chance=chance)
    given = RouterOptions(worker_lease_s=1e6, **options)  # type: ignore[arg-type]
    plane = FleetPlane(given, OwnModel(), world)
    await plane.start()
    runs = [asyncio.create_task(each.run()) for each in (*prefill.values(), *decode)]
    runs += [asyncio.create_task(each.own.run()) for each in decode]
    for each in (*prefill.values(), *decode):
        await plane.store.join(each.member)
    said = EngineLoad(total_blocks=NUM_BLOCKS, free_blocks=NUM_BLOCKS, prefill_token_ms=TOKEN_MS)
    for each in prefill.values():
        plane.store.report(each.member.key, said)
    await asyncio.sleep(0.1)
    fleet = SimulatedFleet(plane, decode, chance)
    try:
        yield fleet
    finally:
        await cancel(runs)
        await plane.close()
