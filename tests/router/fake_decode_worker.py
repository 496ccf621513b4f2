"""A decode worker without an engine: a real gRPC server whose answers a test decides."""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc

from cluster.cache_change import CacheChange, CachedBlock
from cluster.identity import Role, WorkerKey
from cluster.kv_events.keys import EventKeys
from cluster.kv_events.publisher import KvEventPublisher
from cluster.membership.member import Member
from cluster.process.background import cancel
from cluster.rpc import RpcServer
from cluster.wire import identity_from_wire, identity_to_wire
from cluster.worker_identity import WorkerIdentity
from protos import generation_pb2, worker_pb2, worker_pb2_grpc
from tests.router.planes import PAIRING, member_of

Frame = worker_pb2.WorkerFrame


def tokens_frame(request_id: str, *token_ids: int, choice: int = 0, last: bool = False) -> Frame:
    reason = generation_pb2.FINISH_REASON_LENGTH if last else 0
    tokens = [generation_pb2.GeneratedToken(token_id=token_id) for token_id in token_ids]
    return Frame(
        tokens=[
            worker_pb2.Tokens(
                request_id=request_id, choice=choice, tokens=tokens, finish_reason=reason
            )
        ]
    )


def scored_frame(request_id: str, *, first_index: int) -> Frame:
    tokens = [generation_pb2.PromptToken(token_id=1, logprob=-1.0, rank=1)]
    scored = worker_pb2.PromptTokens(request_id=request_id, first_index=first_index, tokens=tokens)
    return Frame(prompts=[scored])


def ended_frame(
    request_id: str, *, prompt: int = 8, made: int = 1, cached: int = 0, **timing: object
) -> Frame:
    usage = generation_pb2.Usage(prompt_tokens=prompt, completion_tokens=made, cached_tokens=cached)
    ended = worker_pb2.Ended(
        request_id=request_id, usage=usage, timing=generation_pb2.Timing(**timing)
    )
    return Frame(ended=[ended])


def error_frame(request_id: str, code: str, message: str) -> Frame:
    error = worker_pb2.Error(code=code, message=message)
    return Frame(ended=[worker_pb2.Ended(request_id=request_id, error=error)])


class FakeDecodeWorker(worker_pb2_grpc.DecodeWorkerServicer):
    """`submitted`, `cancelled` and `finished` (request, choice) are what came; `send` answers.

    As a context it has started and is stopped however the block ends: a gRPC server that nobody
    stops keeps its process from ending. It says that it is the process which `member` described
    last. With `answer_at_once` every
    request gets its max_tokens tokens 100, 101, ... and its end; with `fails_with` an error of that
    code.
    """

    def __init__(
        self,
        worker_id: str = "decode-1",
        *,
        answer_at_once: bool = False,
        fails_with: str | None = None,
    ) -> None:
        self.worker_id = worker_id
        self.fails_with = fails_with
        self.answer_at_once = answer_at_once
        self.submitted: list[worker_pb2.Submit] = []
        self.cancelled: list[str] = []
        self.finished: list[tuple[str, int]] = []
        self.num_sessions = 0
        self.timing: dict[str, object] = {}
        self.live: list[CachedBlock] = []
        self.port = 0
        self.identity = WorkerIdentity(WorkerKey(worker_id, "i1"), PAIRING)
        self.meant: list[WorkerIdentity] = []
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._server = RpcServer("127.0.0.1", 0)
        self._events: KvEventPublisher | None = None
        self._keys = EventKeys.new()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> "FakeDecodeWorker":
        return await self.start()

    async def __aexit__(self, *cause: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> "FakeDecodeWorker":
        self._server = RpcServer("127.0.0.1", port)
        self._server.add(
            worker_pb2_grpc.add_DecodeWorkerServicer_to_server,
            self,
            "splitserve.worker.v1.DecodeWorker",
        )
        self.port = await self._server.start()
        return self

    async def start_events(self) -> tuple[str, str]:
        async def snapshot() -> list[CachedBlock]:
            return self.live

        self._events = KvEventPublisher("127.0.0.1", 0, 0, snapshot, keys=self._keys)
        return await self._events.start()

    def publish(self, change: CacheChange) -> None:
        """Of its cache, after `start_events`."""
        assert self._events is not None
        self._events.publish(change)

    async def stop_events(self) -> None:
        if self._events is not None:
            await self._events.stop()

    async def stop(self) -> None:
        await self.stop_events()
        await self._server.stop(0)

    def send(self, frame: Frame) -> None:
        self._frames.put_nowait(frame)

    def end_session(self) -> None:
        """After what was sent; the router opens another one."""
        self._frames.put_nowait(None)

    def submit_has_come(self, submit: worker_pb2.Submit) -> None:
        """What this worker does by itself."""
        if self.fails_with is not None:
            self.send(error_frame(submit.request_id, self.fails_with, "as the test says"))
        elif self.answer_at_once:
            begun = max((len(item.token_ids) for item in submit.resume), default=0)
            count = submit.sampling.max_tokens - begun
            token_ids = range(100 + begun, 100 + begun + count)
            self.send(tokens_frame(submit.request_id, *token_ids, last=True))
            self.send(
                ended_frame(
                    submit.request_id,
                    prompt=len(submit.token_ids),
                    made=count,
                    **self.timing,
                )
            )

    def member(self, **values: object) -> Member:
        fields = {"worker_id": self.worker_id, "address": self.address} | values
        if self._events is not None:
            told = self._keys.of_readers
            fields |= {"kv_events_key": told.worker, "kv_reader_secret": told.secret}
        member = member_of(Role.DECODE, **fields)  # type: ignore[arg-type]
        self.identity = WorkerIdentity(member.key, member.pairing)
        return member

    async def Session(
        self,
        request_iterator: AsyncIterator[worker_pb2.RouterMessage],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[Frame]:
        self.num_sessions += 1
        self.meant.append(identity_from_wire((await anext(request_iterator)).open))
        yield Frame(opened=identity_to_wire(self.identity))
        reader = asyncio.create_task(self._read(request_iterator))
        try:
            while (frame := await self._frames.get()) is not None:
                yield frame
        finally:
            await cancel([reader])

    async def _read(self, messages: AsyncIterator[worker_pb2.RouterMessage]) -> None:
        async for message in messages:
            if message.HasField("cancel"):
                self.cancelled.append(message.cancel.request_id)
                continue
            if message.HasField("finish"):
                finish = message.finish
                self.finished += [(finish.request_id, choice) for choice in finish.choices]
                continue
            submit = message.submit
            self.submitted.append(submit)
            self.submit_has_come(submit)


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Polls until true."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)
