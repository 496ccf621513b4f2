"""A decode worker without an engine that takes its time: prompts one after the other, TOKEN_MS for
each token, and a token every STEP_S for as many sequences as it has seats.

Run as `python -m benchmarks.paced_worker ROUTER_GRPC[,ROUTER_GRPC...] WORKER_ID`. Prints `ready`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.mock_worker import serve
from cluster.generation import EngineLoad
from cluster.process.background import cancel
from protos import generation_pb2, worker_pb2, worker_pb2_grpc

TOKEN_MS = 0.5
STEP_S = 0.02
NUM_SEATS = 16
NUM_BLOCKS = 65536
LOAD = EngineLoad(
    total_blocks=NUM_BLOCKS,
    free_blocks=NUM_BLOCKS,
    decode_step_ms=STEP_S * 1000,
    decode_row_ms=0.01,
    prefill_token_ms=TOKEN_MS,
)


class PacedDecode(worker_pb2_grpc.DecodeWorkerServicer):
    """It knows nothing of classes, tenants or deadlines; all its routers share one pace."""

    def __init__(self) -> None:
        self._pace = _Pace()
        self._works: list[asyncio.Task[None]] = []

    async def Session(self, requests: Any, context: Any) -> AsyncIterator[worker_pb2.WorkerFrame]:
        self._works = self._works or [asyncio.create_task(each) for each in self._pace.works()]
        yield worker_pb2.WorkerFrame(opened=(await anext(requests)).open)
        frames = _Frames()
        reading = asyncio.create_task(self._pace.read(requests, frames))
        try:
            while True:
                yield await frames.get()
        finally:
            await cancel([reading])
            self._pace.forget(frames)


_Frames = asyncio.Queue[worker_pb2.WorkerFrame]
"""For one router."""


@dataclass(slots=True, eq=False)
class _Running:
    submit: worker_pb2.Submit
    frames: _Frames
    num_made: int = 0
    """Tokens."""


class _Pace:
    def __init__(self) -> None:
        self._prompts: asyncio.Queue[_Running] = asyncio.Queue()
        self._here: dict[str, _Running] = {}
        self._decoding: dict[str, _Running] = {}
        """In the order in which they began."""

    def works(self) -> tuple[Any, Any]:
        return self._compute(), self._step()

    async def read(self, requests: Any, frames: _Frames) -> None:
        async for message in requests:
            if message.HasField("submit"):
                item = _Running(message.submit, frames)
                self._here[message.submit.request_id] = item
                self._prompts.put_nowait(item)
            elif message.HasField("cancel"):
                self._remove(message.cancel.request_id)

    def forget(self, frames: _Frames) -> None:
        """All of a router that has gone."""
        for request_id in [name for name, item in self._here.items() if item.frames is frames]:
            self._remove(request_id)

    def _remove(self, request_id: str) -> None:
        self._here.pop(request_id, None)
        self._decoding.pop(request_id, None)

    async def _compute(self) -> None:
        while True:
            item = await self._prompts.get()
            if not self._is_here(item):
                continue
            await asyncio.sleep(len(item.submit.token_ids) * TOKEN_MS / 1000)
            if self._is_here(item):
                self._decoding[item.submit.request_id] = item
                self._tell([item])

    async def _step(self) -> None:
        while True:
            await asyncio.sleep(STEP_S)
            self._tell(list(self._decoding.values())[:NUM_SEATS])

    def _is_here(self, item: _Running) -> bool:
        return self._here.get(item.submit.request_id) is item

    def _tell(self, items: Sequence[_Running]) -> None:
        """A token of each, in one frame for each router."""
        told: dict[_Frames, worker_pb2.WorkerFrame] = {}
        for item in items:
            self._make_token(told.setdefault(item.frames, worker_pb2.WorkerFrame()), item)
        for frames, frame in told.items():
            frames.put_nowait(frame)

    def _make_token(self, frame: worker_pb2.WorkerFrame, item: _Running) -> None:
        request_id, max_tokens = item.submit.request_id, item.submit.sampling.max_tokens
        item.num_made += 1
        is_last = item.num_made >= max_tokens
        frame.tokens.add(
            request_id=request_id,
            tokens=[generation_pb2.GeneratedToken(token_id=28)],
            finish_reason=generation_pb2.FINISH_REASON_LENGTH if is_last else 0,
        )
        if is_last:
            num_prompt = len(item.submit.token_ids)
            usage = generation_pb2.Usage(prompt_tokens=num_prompt, completion_tokens=max_tokens)
            timing = generation_pb2.Timing(prefill_ms=num_prompt * TOKEN_MS)
            frame.ended.add(request_id=request_id, usage=usage, timing=timing)
            self._remove(request_id)


if __name__ == "__main__":
    worker = serve(
        sys.argv[1], PacedDecode(), worker_id=sys.argv[2], load=LOAD, max_num_seqs=NUM_SEATS
    )
    asyncio.run(worker)
