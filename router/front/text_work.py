"""The work on texts that could hold the interpreter: done by other processes.

A chat's template, a long text, a large body: each is pure computing of a size or a kind that the
client, or whoever made the checkpoint, has chosen. The event loop only sends it away and waits.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.grammar import Grammar
from router.front.caller import NOBODY, Caller
from router.front.generation_request import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from router.telemetry.request_tracing import CHAT, EMBEDDINGS, TEXT_COMPLETION

LARGE_BODY_BYTES = 32 * 1024
"""A body over this is read by a text worker. Read here, one of this size holds the loop for 1 ms
(8,000 token ids, or 1,100 empty messages: decode, checks; 2-core machine), and one of which a
grammar is made for 15 (1,000 schemas of strict tools) to 20 (20,000 comparisons of alternatives of
a form): router/grammar/limits.py bounds it. What a text worker has left of a large one is read here
again, its form with it, and holds it for no longer."""

MAX_DECODED_HERE = 2000
"""Ids of a prompt to the text of an echo: over it that is a text worker's work. 16,000 ids of 64
characters held the loop for 9 ms."""


class NotHere(Exception):
    """A body that a text worker is to read, though it is small."""


class Door(enum.StrEnum):
    """Where a body came in: how it is to be read."""

    CHAT = "chat"
    COMPLETION = "completion"
    GRPC = "grpc"
    TOKENIZE = "tokenize"
    DETOKENIZE = "detokenize"
    MESSAGES = "messages"
    COUNT_TOKENS = "count_tokens"
    RESPONSES = "responses"
    EMBEDDINGS = "embeddings"
    SCORE = "score"
    RERANK = "rerank"
    GRPC_EMBED = "grpc_embed"
    GRPC_SCORE = "grpc_score"

    @property
    def is_pooled(self) -> bool:
        """Its prompts become embeddings or scores."""
        return self in _POOLED

    @property
    def inputs(self) -> str:
        """What has its prompts in the body, where they are pooled, as messages name it."""
        return _INPUTS[self]

    @property
    def queries(self) -> str:
        """What its inputs are paired with, where they are, as messages name it."""
        return _QUERIES[self]

    @property
    def has_pairs(self) -> bool:
        """Its inputs are paired with other texts: more may be made of a body than it has."""
        return self in _QUERIES

    @property
    def operation(self) -> str:
        """Of its requests, as a trace names it."""
        if self.is_pooled:
            return EMBEDDINGS
        return CHAT if self is Door.CHAT else TEXT_COMPLETION


_INPUTS = {
    Door.EMBEDDINGS: "input",
    Door.SCORE: "text_2",
    Door.RERANK: "documents",
    Door.GRPC_EMBED: "inputs",
    Door.GRPC_SCORE: "documents",
}
_QUERIES = {Door.SCORE: "text_1", Door.RERANK: "query", Door.GRPC_SCORE: "queries"}
_POOLED = frozenset(_INPUTS)


@dataclass(frozen=True, slots=True)
class SplitBody:
    """A body with its prompts taken out."""

    rest: bytes
    """The body as it came, but for the prompts: small, read like any other."""
    prompts: Sequence[Prompt]
    is_echoed: bool = False
    """The prompts' text is part of the answer."""
    ignored: tuple[str, ...] = ()
    """Names of unknown fields that were left out."""
    num_limited_bytes: int = 0
    """Of the rest, those that have limits of their own: tools and a prediction."""


def has_many_ids(prompts: Sequence[Prompt]) -> bool:
    """Whether their texts, where somebody wants them, are not to be made on the loop."""
    ids = (prompt.token_ids for prompt in prompts if isinstance(prompt, TokenPrompt))
    return sum(map(len, ids)) > MAX_DECODED_HERE


@dataclass(frozen=True, slots=True)
class ReadBody:
    """A large body after a text worker has read it; `rest` as in SplitBody."""

    rest: bytes
    prompts: tuple[TokenPrompt, ...]
    ignored: tuple[str, ...] = ()
    """As in SplitBody."""
    num_chars: int = 0
    """Of the texts that were made of it, and encoded: of pairs they may be many times the body."""


class TextWork(Protocol):
    """`start` once, then any number of calls at once, `close` once; all from the event loop.

    Calls raise what the work raises (InvalidRequest and its kin), QueueFull when too much waits,
    and InvalidRequest for what takes more time or memory than one request may. A caller that is
    cancelled is forgotten; the work itself ends within its limits. Where many wait, callers'
    addresses take turns.
    """

    def why_not_ready(self) -> str | None:
        """None while texts are read; else what is missing, in words."""
        ...

    async def start(self) -> None:
        """Returns at once; calls wait until the work can begin."""
        ...

    async def encode(
        self, prompt: TextPrompt | ChatPrompt, max_context_tokens: int, caller: Caller = NOBODY
    ) -> list[int]:
        """Renders and tokenizes; the ids are checked."""
        ...

    async def read(
        self, door: Door, body: bytes, max_context_tokens: int, caller: Caller = NOBODY
    ) -> ReadBody:
        """Reads a body: every check of a small one, and the prompts as ids."""
        ...

    async def try_grammar(self, grammar: Grammar, caller: Caller = NOBODY) -> None:
        """Returns for one that engines can follow. Raises InvalidRequest for others, NotReady where
        that could not be found out."""
        ...

    async def close(self) -> None:
        """Work that waits ends with NotReady."""
        ...
