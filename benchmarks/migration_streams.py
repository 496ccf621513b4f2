"""Streamed answers of every kind that must go on with another worker, and what makes two the same.

Five kinds: greedy, seeded with penalties, two choices, a stop string, logprobs. Each is asked under
a cache salt of its own, so that nobody has any of its prompt.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

MAX_TOKENS = 56
SAMPLED = {"temperature": 0.9, "top_p": 0.95}
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "seeded": {**SAMPLED, "seed": 7, "frequency_penalty": 0.4, "repetition_penalty": 1.1},
    "n = 2": {**SAMPLED, "seed": 11, "n": 2},
    "stop string": {"temperature": 0},
    "logprobs": {**SAMPLED, "seed": 3, "logprobs": 2},
}
_SUBJECTS = ("the sea at night", "a clock maker", "how bread is made", "two rivers", "a long road")
PROMPTS = {
    kind: f"Here is a story about {subject}, told slowly and with care. It begins like this: once"
    for kind, subject in zip(KINDS, _SUBJECTS, strict=True)
}
_STOP_CHARS = 12
"""Of the undisturbed text near its end: beyond the fortieth token."""


@dataclass(slots=True)
class Answer:
    """One answer as its client has it."""

    kind: str
    request_id: str
    texts: dict[int, str] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    decode_worker: str = ""
    arrivals_s: list[float] = field(default_factory=list)
    """Of text, on the monotonic clock."""
    num_pieces: int = 0
    """Of the first choice's text: tokens, nearly."""

    @property
    def content(self) -> tuple[object, ...]:
        """What must not differ."""
        counts = {name: self.usage.get(name) for name in ("prompt_tokens", "completion_tokens")}
        return self.texts, self.reasons, self.logprobs, counts, self.error

    @property
    def cached_tokens(self) -> int | None:
        """Nor this, but for a request that was lost without a token: asked for again, it may find
        its own prompt. None: not told."""
        details = self.usage.get("prompt_tokens_details") or {}
        return details.get("cached_tokens")

    @property
    def longest_gap_ms(self) -> float:
        """Between two arrivals of text."""
        return max(((b - a) * 1e3 for a, b in pairwise(self.arrivals_s)), default=0.0)

    def take(self, event: Mapping[str, Any]) -> None:
        """One event of the stream."""
        if "error" in event:
            self.error = event["error"]["code"] or "no code"
            return
        for choice in event["choices"]:
            index = choice["index"]
            self.texts[index] = self.texts.get(index, "") + choice["text"]
            if choice["finish_reason"] is not None:
                self.reasons[index] = choice["finish_reason"]
            if choice.get("logprobs"):
                self.logprobs.append(_flat(choice["logprobs"]))
            if choice["text"]:
                self.arrivals_s.append(time.monotonic())
                self.num_pieces += index == 0
        self.usage = event.get("usage") or self.usage
        if timing := event.get("splitserve"):
            self.decode_worker = timing["decode_worker"]


def joined_logprobs(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """However many tokens came in one event: one list of each."""
    if not parts:
        return []
    return [{name: [item for part in parts for item in part[name]] for name in parts[0]}]


def _flat(logprobs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values for name, values in logprobs.items() if isinstance(values, list)}


class Client:
    """Asks one fleet."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._stop: list[str] = []
        self.expected: dict[str, Answer] = {}
        """Undisturbed, by kind."""

    async def learn(self) -> None:
        """Asks for every kind undisturbed. Raises RuntimeError when one fails."""
        answers = await asyncio.gather(*(self.ask(kind, "undisturbed") for kind in KINDS))
        self.expected = {answer.kind: answer for answer in answers}
        text = self.expected["stop string"].texts.get(0, "")
        at = len(text) - 2 * _STOP_CHARS
        self._stop = [text[at : at + _STOP_CHARS]]
        self.expected["stop string"] = await self.ask("stop string", "undisturbed again")
        for kind, answer in self.expected.items():
            if answer.error:
                raise RuntimeError(f"an undisturbed answer ({kind}) failed: {answer.error}")

    def is_right(self, answer: Answer, *, was_retried: bool = False) -> bool:
        """The same as undisturbed, usage included; `was_retried`: without a token."""
        expected = self.expected[answer.kind]
        is_cached_right = was_retried or answer.cached_tokens == expected.cached_tokens
        return answer.content == expected.content and is_cached_right

    async def ask(self, kind: str, name: str, into: Answer | None = None) -> Answer:
        """`into` is filled while the answer comes."""
        answer = into or Answer(kind, f"{name}-{kind}".replace(" ", ".").replace("=", "."))
        headers = {"x-request-id": answer.request_id}
        try:
            async with self._http.stream(
                "POST", "/v1/completions", json=self._body(kind, name), headers=headers
            ) as reply:
                async for line in reply.aiter_lines():
                    if (data := line.removeprefix("data: ")).startswith("{"):
                        answer.take(json.loads(data))
        except httpx.HTTPError as failure:
            answer.error = f"no typed error: {failure!r}"
        answer.logprobs = joined_logprobs(answer.logprobs)
        return answer

    def _body(self, kind: str, name: str) -> dict[str, Any]:
        return {
            "model": "smollm2",
            "prompt": PROMPTS[kind],
            "max_tokens": MAX_TOKENS,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "timings": True,
            "cache_salt": name,
            "stop": self._stop if kind == "stop string" else None,
            **KINDS[kind],
        }
