"""A steady load of streamed requests whose right answers are known.

Every client asks one request after the other, greedily, with a prompt of a fixed set under a cache
salt of its own: each is computed anew, by whatever workers there are.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from cluster.process.background import cancel

NUM_PROMPTS = 12
SHORTEST_PROMPT, LONGEST_PROMPT = 150, 400
MAX_TOKENS = 64
REQUEST_TIMEOUT_S = 120.0
"""Far over any goal: a request that is forgotten is to be seen as such."""


@dataclass(slots=True)
class Answer:
    """One request as its client saw it; moments in seconds of the monotonic clock."""

    prompt: int
    sent_s: float
    arrivals_s: list[float] = field(default_factory=list)
    text: str = ""
    error: str = ""
    """The code of its typed error, or what came in place of one; empty: answered."""
    ended_s: float | None = None
    prefill_worker: str = ""
    decode_worker: str = ""

    def longest_wait_s(self, from_s: float) -> float:
        """The longest time without a word after `from_s`; 0 when it had ended by then."""
        moments = [self.sent_s, *self.arrivals_s]
        moments.append(time.monotonic() if self.ended_s is None else self.ended_s)
        pairs = zip(moments, moments[1:], strict=False)
        return max((b - max(a, from_s) for a, b in pairs if b > from_s), default=0.0)


def is_right(answer: Answer, expected: str) -> bool:
    """Whole and equal; or, behind a typed error, equal as far as it went."""
    if answer.error:
        return answer.error.isidentifier() and expected.startswith(answer.text)
    return answer.text == expected


class SteadyLoad:
    """Clients that can be paused; `answers` has all their requests, the running ones too."""

    def __init__(self, port: int, num_clients: int, *, seed: int = 0) -> None:
        chance = random.Random(seed)
        self.answers: list[Answer] = []
        self.expected: list[str] = []
        self._prompts = [_prompt(chance) for _ in range(NUM_PROMPTS)]
        self._salts = (f"{chance.getrandbits(64):x}-{number}" for number in itertools.count())
        self._num_clients = num_clients
        self._may_ask = asyncio.Event()
        self._http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=REQUEST_TIMEOUT_S
        )
        self._clients: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Learns the undisturbed answers first, one after the other. Raises RuntimeError when one
        does not come."""
        for prompt in range(NUM_PROMPTS):
            answer = await self._ask(prompt)
            if answer.error:
                raise RuntimeError(f"an undisturbed request failed: {answer.error}")
            self.expected.append(answer.text)
        self.resume()
        self._clients = [asyncio.create_task(self._run(n)) for n in range(self._num_clients)]

    def pause(self) -> None:
        """Running requests go on to their end; no new ones."""
        self._may_ask.clear()

    def resume(self) -> None:
        """Every client asks again."""
        self._may_ask.set()

    async def stop(self) -> None:
        """Lets go of what is running."""
        await cancel(self._clients)
        await self._http.aclose()

    def since(self, moment_s: float) -> list[Answer]:
        """Requests that were running then or came later."""
        return [a for a in self.answers if a.ended_s is None or a.ended_s > moment_s]

    async def _run(self, client: int) -> None:
        for number in itertools.count(client):
            await self._may_ask.wait()
            answer = await self._ask(number % NUM_PROMPTS)
            if answer.error:
                await asyncio.sleep(0.1)  # as a client that tries again would

    async def _ask(self, prompt: int) -> Answer:
        answer = Answer(prompt, time.monotonic())
        self.answers.append(answer)
        try:
            async with self._http.stream(
                "POST", "/v1/completions", json=_body(self._prompts[prompt], next(self._salts))
            ) as reply:
                async for line in reply.aiter_lines():
                    _note(answer, line)
        except httpx.HTTPError as failure:
            answer.error = f"no typed error: {failure!r}"
        answer.ended_s = time.monotonic()
        return answer


def _prompt(chance: random.Random) -> list[int]:
    length = chance.randint(SHORTEST_PROMPT, LONGEST_PROMPT)
    return [chance.randrange(1000, 40_000) for _ in range(length)]


def _body(prompt: Sequence[int], salt: str) -> dict[str, object]:
    return {
        "model": "smollm2",
        "prompt": list(prompt),
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "timings": True,
        "cache_salt": salt,
    }


def _note(answer: Answer, line: str) -> None:
    """One line of the answer: an event, or the whole of a refusal's body."""
    data = line.removeprefix("data: ")
    if not data.startswith("{"):
        return
    event = json.loads(data)
    if "error" in event:
        answer.error = event["error"]["code"] or "no code"
        return
    if text := "".join(choice["text"] for choice in event["choices"]):
        answer.arrivals_s.append(time.monotonic())
        answer.text += text
    if timing := event.get("splitserve"):
        answer.prefill_worker = timing["prefill_worker"]
        answer.decode_worker = timing["decode_worker"]
