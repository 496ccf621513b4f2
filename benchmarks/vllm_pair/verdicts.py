"""Answers beside those of a server by itself.

A text is expected where a server gives it to the prompt both alone and beside others: where these
differ, rounding decides between words, and the prompt is not scored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.vllm_pair.asking import ask_all, at_one
from benchmarks.vllm_pair.late_reads import AT_ONCE, NEW_TOKENS, Answer
from benchmarks.vllm_pair.prompts import people_and_towns


@dataclass(frozen=True, slots=True)
class Verdict:
    """On one answer."""

    answer: Answer
    expected: str | None
    """None where the server does not agree with itself."""

    @property
    def is_scored(self) -> bool:
        """Whether there is an answer, and one to compare it with."""
        return self.expected is not None and not self.answer.is_error

    @property
    def is_wrong(self) -> bool:
        """Another text than the expected one."""
        return self.is_scored and self.answer.text != self.expected

    @property
    def has_others_facts(self) -> bool:
        """Whether people or towns are named that are another prompt's, scored or not."""
        named = people_and_towns(self.answer.text)
        expected = people_and_towns(self.expected or "")
        return bool(named - people_and_towns(self.answer.prompt) - expected)

    def told(self, router_log: Path) -> dict[str, Any]:
        """For whoever looks for a cause: with what the router's log has on the request."""
        answer = {name: value for name, value in asdict(self.answer).items() if name != "prompt"}
        return answer | {
            "expected": self.expected,
            "is_wrong": self.is_wrong,
            "is_error": self.answer.is_error,
            "has_others_facts": self.has_others_facts,
            "router": _lines_of(self.answer.request_id, router_log),
        }


async def verdicts_on(
    http: httpx.AsyncClient, servers: Sequence[str], answers: Sequence[Answer]
) -> list[Verdict]:
    """Each prompt is asked at one of the servers, at first one at a time, then many together."""
    shares = [answers[place :: len(servers)] for place in range(len(servers))]
    judged = await asyncio.gather(
        *(_judged(http, url, share) for url, share in zip(servers, shares, strict=True))
    )
    return [verdict for share in judged for verdict in share]


async def _judged(http: httpx.AsyncClient, url: str, answers: Sequence[Answer]) -> list[Verdict]:
    prompts = [answer.prompt for answer in answers]
    ask = at_one(http, url)
    alone = await ask_all(ask, prompts, NEW_TOKENS, 1, "alone")
    beside = await ask_all(ask, prompts, NEW_TOKENS, AT_ONCE, "beside")
    both = zip(answers, alone, beside, strict=True)
    return [Verdict(answer, a if a == b else None) for answer, a, b in both]


def _lines_of(request_id: str, router_log: Path) -> list[Any]:
    named = f'"request_id":"{request_id}-'  # and what the router adds
    lines = router_log.read_text().splitlines()
    return [json.loads(line) for line in lines if named in line and line.startswith("{")]
