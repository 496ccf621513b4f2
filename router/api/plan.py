"""A body, read and checked, as both kinds of endpoint hand it on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cluster.sampling import SamplingParams
from router.api.answer_shape import AnswerShape
from router.front.generation_request import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """What the client asked of the answer itself."""

    stream: bool
    include_usage: bool
    continuous_usage: bool
    timings: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to generate and how to tell it."""

    prompts: tuple[Prompt, ...]
    sampling: SamplingParams
    max_tokens: int | None
    timeout_s: float | None
    """The client's deadline, as the body names it."""
    stop: tuple[str, ...]
    cache_salt: str
    shape: AnswerShape
    options: AnswerOptions
    id_prefix: str


class BodyReader(Protocol):
    """One endpoint's way from bytes to a plan."""

    def read(self, body: bytes) -> Plan:
        """Raises InvalidRequest and its kin, naming the parameter at fault."""
        ...
