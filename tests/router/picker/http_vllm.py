"""A vLLM server's HTTP, as far as a router and a gateway's clients see it, on a real port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.router.vllm import recorded

NUM_TOKENS = 3
"""Of every answer."""


@dataclass
class HttpVllm:
    """`asked` are the bodies of generations that came, `heads` their headers."""

    port: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    """Streams wait for it after their first token."""
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Generations wait for it before all."""
    num_broken_off: int = 0
    """Streams that their client left."""
    status: int = 200
    is_well: bool = True
    num_made: int | None = None
    """Tokens, as its page of metrics tells; None: it tells nothing of them."""
    is_busy: bool = False
    """It makes some from look to look, whether or not an answer shows them."""
    num_looks: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def generate(self, request: Request) -> Response:
        body = msgspec.json.decode(await request.body())
        self.asked.append(body)
        self.heads.append(dict(request.headers))
        await self.answers.wait()
        if self.status != 200:
            return Response(b'{"error":{"message":"no"}}', self.status)
        if body.get("stream"):
            return StreamingResponse(self._events(), media_type="text/event-stream")
        usage = {"prompt_tokens": 9, "completion_tokens": NUM_TOKENS}
        answer = {"choices": [{"text": self.address}], "usage": usage, "kv_transfer_params": None}
        return _json(msgspec.json.encode(answer))

    async def _events(self) -> AsyncIterator[bytes]:
        for place in range(NUM_TOKENS):
            told = {"choices": [{"index": 0, "text": f"{self.address} "}]}
            yield b"data: %b\n\n" % msgspec.json.encode(told)
            if place == 0:
                try:
                    await self.goes_on.wait()
                except asyncio.CancelledError:
                    self.num_broken_off += 1
                    raise
        yield b"data: [DONE]\n\n"

    async def tokenize(self, request: Request) -> Response:
        text = msgspec.json.decode(await request.body())["prompt"]
        return _json(msgspec.json.encode({"tokens": list(text.encode())}))

    async def metrics(self, _request: Request) -> Response:
        page = b"process_start_time_seconds %d.0\n" % (1_500_000_000 + self.port)
        page += b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n'
        self.num_looks += 1
        if self.num_made is not None:
            self.num_made += self.is_busy
            page += b"vllm:prompt_tokens_total 0.0\nvllm:generation_tokens_total %d.0\n" % (
                self.num_made
            )
        return Response(page + b'vllm:kv_cache_usage_perc{engine="0"} 0.1\n')

    def app(self) -> Starlette:
        async def health(_request: Request) -> Response:
            return Response(b"", 200 if self.is_well else 503)

        async def version(_request: Request) -> Response:
            return _json(recorded.VERSION)

        async def models(_request: Request) -> Response:
            return _json(recorded.MODELS)

        asked = ["/v1/completions", "/v1/chat/completions"]
        return Starlette(
            routes=[
                *(Route(path, self.generate, methods=["POST"]) for path in asked),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/health", health),
                Route("/metrics", self.metrics),
                Route("/version", version),
                Route("/v1/models", models),
            ]
        )


@asynccontextmanager
async def http_vllm() -> AsyncIterator[HttpVllm]:
    fake = HttpVllm()
    config = uvicorn.Config(fake.app(), port=0, log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    fake.port = server.servers[0].sockets[0].getsockname()[1]
    fake.goes_on.set()
    fake.answers.set()
    ticking = asyncio.create_task(server.main_loop())
    try:
        yield fake
    finally:
        fake.goes_on.set()
        fake.answers.set()
        server.should_exit = True
        await ticking
        await server.shutdown()


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
