"""What a platform's clients do all day, in short: texts and chats, streamed and whole, shared and
new prompts, several choices, seeds, clients that leave, requests that are wrong, and gRPC.

Each client asks one request after the other, of a kind that is drawn anew every time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import grpc.aio
import httpx

from cluster.process.background import cancel
from protos import inference_pb2, inference_pb2_grpc

REQUEST_TIMEOUT_S = 120.0
NUM_CONVERSATIONS = 6
LONGEST_PROMPT = 900
"""Tokens."""


class MixedLoad:
    """`answers` counts, by kind, what came; `wrong` what should not have."""

    def __init__(self, port: int, grpc_port: int, num_clients: int, *, seed: int = 0) -> None:
        self.answers: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self._num_clients = num_clients
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self._http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=REQUEST_TIMEOUT_S
        )
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}")
        self._inference = inference_pb2_grpc.InferenceStub(self._channel)
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "new prompt, streamed": self._streamed,
            "conversation": self._conversation,
            "two choices with a seed": self._two_choices,
            "client that leaves": self._leaves,
            "wrong request": self._refused,
            "gRPC": self._over_grpc,
        }
        self._clients: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """From a running loop."""
        self._clients = [asyncio.create_task(self._run()) for _ in range(self._num_clients)]

    async def stop(self) -> None:
        """Lets go of what is running. Raises what a client has ended with."""
        for ended in filter(asyncio.Task.done, self._clients):
            ended.result()
        await cancel(self._clients)
        await self._http.aclose()
        await self._channel.close()

    async def _run(self) -> None:
        while True:
            kind = self._chance.choice(list(self._kinds))
            try:
                await self._kinds[kind]()
                self.answers[kind] += 1
            except (httpx.HTTPError, grpc.aio.AioRpcError, WrongAnswerError) as failure:
                self.wrong[f"{kind}: {failure!r}"[:200]] += 1
                await asyncio.sleep(0.1)  # as a client that tries again would

    async def _streamed(self) -> None:
        async with self._http.stream("POST", "/v1/completions", json=self._new()) as reply:
            lines = [line async for line in reply.aiter_lines()]
        _check(lines[-2:] == ["data: [DONE]", ""], f"{reply.status_code} {lines[-2:]}")

    async def _conversation(self) -> None:
        number = self._chance.randrange(NUM_CONVERSATIONS)
        turns = [f"Tell me the story number {number}, part {part}, in detail." for part in range(8)]
        said = [{"role": "user", "content": turn} for turn in turns[: self._chance.randint(1, 8)]]
        body = {"model": "smollm2", "messages": said, "max_tokens": 24, "temperature": 0}
        reply = await self._http.post("/v1/chat/completions", json=body)
        _check(reply.status_code == 200, reply.text)

    async def _two_choices(self) -> None:
        body = self._new() | {"stream": False, "n": 2, "temperature": 0.9, "seed": 7}
        reply = await self._http.post("/v1/completions", json=body)
        _check(reply.status_code == 200 and len(reply.json()["choices"]) == 2, reply.text)

    async def _leaves(self) -> None:
        async with self._http.stream("POST", "/v1/completions", json=self._new()) as reply:
            async for line in reply.aiter_lines():
                if line and self._chance.random() < 0.2:
                    return

    async def _refused(self) -> None:
        wrong = self._chance.choice([{"temperature": "hot"}, {"max_tokens": -1}, {"n": 10**6}])
        reply = await self._http.post("/v1/completions", json=self._new() | wrong)
        _check(reply.status_code == 400 and "error" in reply.json(), reply.text)

    async def _over_grpc(self) -> None:
        text = f"Story {next(self._numbers)}: once upon a time"
        request = inference_pb2.GenerateRequest(model="smollm2", text=text)
        request.sampling.max_tokens = 24
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            events = [event async for event in self._inference.Generate(request)]
        _check(bool(events), "no event")

    def _new(self) -> dict[str, object]:
        length = self._chance.randint(20, LONGEST_PROMPT)
        return {
            "model": "smollm2",
            "prompt": [self._chance.randrange(1000, 40_000) for _ in range(length)],
            "max_tokens": self._chance.randint(1, 48),
            "ignore_eos": True,
            "stream": True,
            "cache_salt": f"soak-{next(self._numbers)}",
        }


class WrongAnswerError(Exception):
    """Not what this kind of request is answered with."""


def _check(is_right: bool, what: str) -> None:
    if not is_right:
        raise WrongAnswerError(json.dumps(what)[:160])
