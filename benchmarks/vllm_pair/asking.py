"""Ways to one answer: the router, vLLM's own order of calls, and a single server.

The order of calls is that of vLLM's example proxy: the next prefill server in turn, then the decode
server with what the former has answered, and no look at the time between.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx

REQUEST_TIMEOUT_S = 600.0
ERROR = "error:"
"""With this begins what stands in a text's place where there is none."""
MAX_SAID_CHARS = 300
Ask = Callable[[str, int, str], Awaitable[str]]
"""(prompt, max_tokens, request id) -> the text, greedy. Raises httpx.HTTPError."""


def new_client() -> httpx.AsyncClient:
    """Patient: the machine is a small one."""
    return httpx.AsyncClient(timeout=REQUEST_TIMEOUT_S)


def at_one(http: httpx.AsyncClient, url: str) -> Ask:
    """A server, or a router."""

    async def ask(prompt: str, max_tokens: int, request_id: str) -> str:
        return _text_in(await _posted(http, url, _body(prompt, max_tokens), request_id))

    return ask


def in_turns(http: httpx.AsyncClient, prefill: Sequence[str], decode: str) -> Ask:
    """As vLLM's example proxy does."""
    turns = itertools.cycle(prefill)

    async def ask(prompt: str, max_tokens: int, request_id: str) -> str:
        body = _body(prompt, max_tokens)
        kept = body | {"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
        answer = await _posted(http, next(turns), kept, request_id)
        read = body | {"kv_transfer_params": answer["kv_transfer_params"]}
        return _text_in(await _posted(http, decode, read, request_id))

    return ask


async def asked(ask: Ask, prompt: str, max_tokens: int, request_id: str) -> str:
    """The text; of a request that fails the error, which is no text."""
    try:
        return await ask(prompt, max_tokens, request_id)
    except httpx.HTTPError as error:
        return f"{ERROR} {error!r}"


async def ask_all(
    ask: Ask, prompts: Sequence[str], max_tokens: int, at_once: int, name: str
) -> list[str]:
    """The texts in their order. `name`: of these requests, in a server's log."""
    places = asyncio.Semaphore(at_once)

    async def one(number: int, prompt: str) -> str:
        async with places:
            return await asked(ask, prompt, max_tokens, f"{name}-{number}")

    return await asyncio.gather(*(one(number, prompt) for number, prompt in enumerate(prompts)))


async def token_ids(http: httpx.AsyncClient, url: str, prompt: str) -> list[int]:
    """As a vLLM server has them. Raises httpx.HTTPError."""
    answer = await http.post(f"{url}/tokenize", json={"model": "smollm2", "prompt": prompt})
    answer.raise_for_status()
    return list(answer.json()["tokens"])


def _body(prompt: str, max_tokens: int) -> dict[str, Any]:
    return {"model": "smollm2", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}


async def _posted(http: httpx.AsyncClient, url: str, body: dict[str, Any], request_id: str) -> Any:
    headers = {"x-request-id": request_id}
    answer = await http.post(f"{url}/v1/completions", json=body, headers=headers)
    if answer.is_error:
        said = f"{answer.status_code}: {answer.text[:MAX_SAID_CHARS]}"
        raise httpx.HTTPStatusError(said, request=answer.request, response=answer)
    return answer.json()


def _text_in(answer: Any) -> str:
    return str(answer["choices"][0]["text"])
