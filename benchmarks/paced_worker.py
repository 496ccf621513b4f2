"""A decode worker without an engine that takes its time: prompts one after the other, TOKEN_MS for
each token, and a token every STEP_S for as many sequences as it has seats.

Run as `python -m benchmarks.paced_worker ROUTER_GRPC WORKER_ID`. Prints `ready`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
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
    """It knows nothing of classes, tenants or deadlines."""

    async def Session(self, requests: Any, context: Any) -> AsyncIterator[worker_pb2.WorkerFrame]:
        yield worker_pb2.WorkerFrame(opened=(await anext(requests)).open)
        pace = _Pace()
        tasks = [asyncio.create_task(work) for work in (pace.read(requests), *pace.works())]
        try:
            while True:
                yield await pace.frames.get()
        finally:
            await cancel(tasks)


class _Pace:
    def __init__(self) -> None:
        self.frames: asyncio.Queue[worker_pb2.WorkerFrame] = asyncio.Queue()
        self._prompts: asyncio.Queue[worker_pb2.Submit] = asyncio.Queue()
        self._here: dict[str, worker_pb2.Submit] = {}
        self._made: dict[str, int] = {}
        """Tokens of those that decode, in the order in which they began."""

    def works(self) -> tuple[Any, Any]:
        return self._compute(), self._step()

    async def read(self, requests: Any) -> None:
        async for message in requests:
            if message.HasField("submit"):
                self._here[message.submit.request_id] = message.submit
                self._prompts.put_nowait(message.submit)
            elif message.HasField("cancel"):
                self._here.pop(message.cancel.request_id, None)
                self._made.pop(message.cancel.request_id, None)

    async def _compute(self) -> None:
        while True:
            submit = await self._prompts.get()
            if submit.request_id not in self._here:
                continue
            await asyncio.sleep(len(submit.token_ids) * TOKEN_MS / 1000)
            if submit.request_id in self._here:
                self._made[submit.request_id] = 0
                frame = worker_pb2.WorkerFrame()
                self._make_token(frame, submit)
                self.frames.put_nowait(frame)

    async def _step(self) -> None:
        while True:
            await asyncio.sleep(STEP_S)
            frame = worker_pb2.WorkerFrame()
            for request_id in list(self._made)[:NUM_SEATS]:
                self._make_token(frame, self._here[request_id])
            if frame.tokens:
                self.frames.put_nowait(frame)

    def _make_token(self, frame: worker_pb2.WorkerFrame, submit: worker_pb2.Submit) -> None:
        request_id, max_tokens = submit.request_id, submit.sampling.max_tokens
        self._made[request_id] += 1
        is_last = self._made[request_id] >= max_tokens
        frame.tokens.add(
            request_id=request_id,
            tokens=[generation_pb2.GeneratedToken(token_id=28)],
            finish_reason=generation_pb2.FINISH_REASON_LENGTH if is_last else 0,
        )
        if is_last:
            num_prompt = len(submit.token_ids)
            usage = generation_pb2.Usage(prompt_tokens=num_prompt, completion_tokens=max_tokens)
            timing = generation_pb2.Timing(prefill_ms=num_prompt * TOKEN_MS)
            frame.ended.add(request_id=request_id, usage=usage, timing=timing)
            del self._made[request_id], self._here[request_id]


if __name__ == "__main__":
    worker = serve(
        sys.argv[1], PacedDecode(), worker_id=sys.argv[2], load=LOAD, max_num_seqs=NUM_SEATS
    )
    asyncio.run(worker)
