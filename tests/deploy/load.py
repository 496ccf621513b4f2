"""Clients that stream through a release's Service, one request after the other, until its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tests.deploy.release import Release

_PROMPTS = ("The river ran past", "Once upon a time", "In the summer the mill", "A story of ships")
_MAX_TOKENS = 24
_NUM_TOLD = 5


class Load:
    """What clients got, beside what they would have got from a cluster at rest."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._expected: dict[str, set[str]] = {}
        """By prompt: of one model, or of that before and that after it."""
        self._unexpected: list[tuple[str, str]] = []
        self._is_over = False
        self.num_right = 0
        self.failed: list[str] = []

    @property
    def wrong(self) -> list[str]:
        """What failed, and what other words came than at rest."""
        others = (each for each in self._unexpected if each[1] not in self._expected[each[0]])
        return self.failed + [f"{prompt}: {text!r}" for prompt, text in others]

    def check(self) -> None:
        """AssertionError with the first of what is wrong, and how much it is."""
        wrong = self.wrong
        told = "\n".join(wrong[:_NUM_TOLD])
        assert not wrong, f"{len(wrong)} wrong beside {self.num_right} right, at first:\n{told}"
        assert self.num_right > 0

    async def learn(self) -> None:
        """Asks each prompt once, at rest; a second time beside what it has learned."""
        for prompt in _PROMPTS:
            self._expected.setdefault(prompt, set()).add(await self._stream(prompt))

    @property
    def num_models(self) -> int:
        """By which each prompt was answered in another way."""
        return min(map(len, self._expected.values()))

    async def ask_on(self, first: int) -> None:
        """One client; returns after its request when the load is over."""
        turn = first
        while not self._is_over:
            prompt = _PROMPTS[turn % len(_PROMPTS)]
            turn += 1
            try:
                text = await self._stream(prompt)
            except (httpx.HTTPError, ValueError) as error:
                self.failed.append(f"{prompt}: {error!r}")
                continue
            if text in self._expected[prompt]:
                self.num_right += 1
            else:
                self._unexpected.append((prompt, text))

    def end(self) -> None:
        self._is_over = True

    async def _stream(self, prompt: str) -> str:
        """The whole text. ValueError for an answer that is none, or has no end."""
        body = {"model": "smollm2", "prompt": prompt, "max_tokens": _MAX_TOKENS}
        body |= {"temperature": 0, "stream": True}
        text, is_whole = "", False
        async with self._client.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != 200:
                raise ValueError(f"HTTP {answer.status_code}: {(await answer.aread()).decode()}")
            async for line in answer.aiter_lines():
                is_whole = is_whole or line == "data: [DONE]"
                text += _words(line)
        if not is_whole:
            raise ValueError(f"the stream ended early, after {text!r}")
        return text


def _words(line: str) -> str:
    if not line.startswith("data: {"):
        return ""
    event = json.loads(line.removeprefix("data: "))
    if "error" in event:
        raise ValueError(event["error"])
    return "".join(choice["text"] for choice in event["choices"])


@asynccontextmanager
async def load(
    release: Release, num_clients: int = 2, *, changes_model: bool = False
) -> AsyncIterator[Load]:
    """Within the block clients ask; at its end each finishes its request, and none may have failed
    or have got a wrong answer: with `changes_model`, one that is neither the whole answer of the
    model before nor that of the model after."""
    async with release.client() as client:
        made = Load(client)
        await made.learn()
        clients = [asyncio.create_task(made.ask_on(turn)) for turn in range(num_clients)]
        try:
            yield made
        finally:
            made.end()
            await asyncio.gather(*clients)
        if changes_model:
            await made.learn()
            assert made.num_models == 2
    made.check()
