"""A body, read and checked, as both kinds of endpoint hand it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from cluster.sampling import SamplingParams
from router.api.answers.shape import AnswerShape
from router.front.generation_request import Prompt, TokenPrompt, Wishes
from router.front.text_work import Door, SplitBody


class AnswerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the client asked of the answer itself."""

    stream: bool
    include_usage: bool
    continuous_usage: bool
    timings: bool
    resumable: bool = False
    """Another connection may have the rest of the stream."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to generate and how to tell it."""

    prompts: tuple[Prompt, ...]
    wishes: Wishes
    timeout_s: float | None
    """The client's deadline, as the body names it."""
    shape: AnswerShape
    options: AnswerOptions
    id_prefix: str
    ignored: tuple[str, ...] = ()
    """Names of unknown fields that were left out."""


class BodyReader(Protocol):
    """One endpoint's way from bytes to a plan. All raise InvalidRequest and its kin, naming the
    parameter at fault.

    A small body is read at once; a large one is split by a text worker and joined by the router.
    """

    door: Door

    def read(self, body: bytes) -> Plan:
        """Bytes to a plan. Raises NotHere for what is to be read as a large one is."""
        ...

    def split(self, body: bytes) -> SplitBody:
        """Every check, and the prompts taken out."""
        ...

    def shape_again(self, sampling: SamplingParams) -> AnswerShape:
        """Of an answer that goes on; nothing of its prompt is told."""
        ...

    def join(self, rest: bytes, prompts: Sequence[TokenPrompt]) -> Plan:
        """As `read` of the body that was split into `rest` and these prompts."""
        ...
