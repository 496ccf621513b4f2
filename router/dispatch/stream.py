"""A request as the dispatcher sees it, and what comes back: tokens per choice, then one summary."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from cluster.block_hash import cache_root, pack_tokens
from cluster.generation import FinishReason, GeneratedToken, PromptToken, Timing, Usage
from cluster.sampling import SamplingParams
from router.dispatch.time_limits import TimeLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedRequest:
    """A checked, tokenized request: `sampling.seed` and `sampling.max_tokens` are resolved."""

    request_id: str
    token_ids: list[int]
    """The prompt; at least one token."""
    sampling: SamplingParams
    is_default_length: bool = False
    """`sampling.max_tokens` was not asked for: a route may cut it to what its worker can hold."""
    tenant: str = ""
    """Who asks, as the server knows it: tenants share the queue fairly."""
    tenant_salt: str = ""
    """The tenant and the client's own salt; keeps prefix caches apart, and does nothing else."""
    limits: TimeLimits
    packed: bytes = field(init=False, repr=False, compare=False)
    """The prompt as the index and the names of its blocks are made from."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "packed", pack_tokens(self.token_ids))

    def root_at(self, pairing_key: str) -> bytes:
        """Where the names of its blocks begin at workers of one pairing."""
        return cache_root(pairing_key, self.tenant_salt)


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """Scored tokens of the prompt, in order, `first_index` the place of the first; where
    `prompt_logprobs` was asked for, all come before any ChoiceTokens. A request that was sent
    again begins again."""

    first_index: int
    tokens: list[PromptToken]


@dataclass(frozen=True, slots=True)
class ChoiceTokens:
    """New tokens of one choice, in order. `finish_reason` comes with the choice's last tokens."""

    choice: int
    tokens: list[GeneratedToken]
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """The last event of a request that succeeded; sent once, after every choice has ended."""

    usage: Usage
    timing: Timing


StreamEvent = PromptTokens | ChoiceTokens | Completed


class StoppedChoices:
    """The choices of one request that its reader has ended, by a stop string.

    The reader calls `stop`; the source hears of it through `listen` and reads `num_tokens`.
    """

    def __init__(self) -> None:
        self._num_tokens: dict[int, int] = {}
        self._listener: Callable[[int], None] = lambda choice: None

    def stop(self, choice: int, num_tokens: int) -> None:
        """Enough of this choice: its first `num_tokens` tokens count. The first call does."""
        if choice not in self._num_tokens:
            self._num_tokens[choice] = num_tokens
            self._listener(choice)

    def listen(self, listener: Callable[[int], None]) -> None:
        """`listener` is called with each choice stopped from now on; the last listener counts."""
        self._listener = listener

    def num_tokens(self, choice: int) -> int | None:
        """The tokens that count; None: the choice was not stopped."""
        return self._num_tokens.get(choice)


class TokenSource(Protocol):
    """What the front of the router needs: the Dispatcher, or a fake of it in tests."""

    def generate(
        self, request: RoutedRequest, stopped: StoppedChoices | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Runs one request: PromptTokens where asked for, ChoiceTokens in order, then exactly one
        Completed, or an error.

        A choice in `stopped` gets no more tokens and ends on its worker. When all choices are
        over, Completed follows within about a second, also when the worker is lost meanwhile:
        then with the usage and timing that are known here.

        Raises SplitserveError subclasses from the iteration. The caller closes the iterator
        (`await stream.aclose()`, or `contextlib.aclosing`) when its client leaves: that cancels
        the request on the workers.
        """
        ...
