"""What one request's decode worker sends, in order, until its end.

    add_prompt* -> add_tokens* -> end | fail
                                  finish of a choice, and close, by the consumer at any time

Holds at most what the request may produce: a worker that sends more has broken the contract.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from cluster.deadline import Clock
from cluster.errors import InternalError, SplitserveError, from_code
from protos import worker_pb2

WorkerMessage = worker_pb2.PromptTokens | worker_pb2.Tokens | worker_pb2.Ended
OnTokens = Callable[[int, int, float], None]
"""Called with a choice, how many tokens of it have come, and when."""
_Item = WorkerMessage | SplitserveError


class RequestStream:
    """One consumer; the session and the request's deadline are the producers."""

    def __init__(
        self,
        *,
        max_tokens: int,
        max_prompt_tokens: int = 0,
        on_finish: Callable[[int], None],
        on_close: Callable[[], None],
        on_tokens: OnTokens = lambda choice, num_tokens, now_s: None,
        on_end: Callable[[], None] = lambda: None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`max_prompt_tokens`: of the prompt, that may come with a logprob. `on_tokens`: tokens
        have come, `on_end`: the worker is through, however far the consumer has read; neither
        after an error."""
        self._tokens_left = max_tokens
        self._prompt_tokens_left = max_prompt_tokens
        self._on_finish = on_finish
        self._on_close = on_close
        self._on_tokens = on_tokens
        self._on_end = on_end
        self._items: asyncio.Queue[_Item] = asyncio.Queue()
        self._over = False
        self._clock = clock
        self.last_token_s: float | None = None
        """When the latest tokens came from the worker, read or not; None: there are none yet."""

    def add_prompt(self, scored: worker_pb2.PromptTokens) -> None:
        """Tokens of the prompt with their logprobs."""
        self._prompt_tokens_left -= len(scored.tokens)
        if self._prompt_tokens_left < 0:
            self.fail(InternalError("the decode worker scored more of the prompt than there is"))
        elif not self._over:
            self._items.put_nowait(scored)

    def add_tokens(self, tokens: worker_pb2.Tokens) -> None:
        """New tokens of one choice."""
        self.last_token_s = now_s = self._clock()
        self._tokens_left -= len(tokens.tokens)
        if self._tokens_left < 0:
            self.fail(InternalError("the decode worker sent more tokens than were asked for"))
        elif not self._over:
            self._items.put_nowait(tokens)
            self._on_tokens(tokens.choice, len(tokens.tokens), now_s)

    def end(self, ended: worker_pb2.Ended) -> None:
        """The worker's last word."""
        if ended.HasField("error"):
            self.fail(from_code(ended.error.code, ended.error.message))
        elif not self._over:
            self._over = True
            self._items.put_nowait(ended)
            self._on_end()

    def fail(self, error: SplitserveError) -> None:
        """The request ends with an error, after what has arrived; the first end counts."""
        if not self._over:
            self._over = True
            self._items.put_nowait(error)

    async def next(self) -> WorkerMessage:
        """The next message; nothing may be asked for after Ended. Raises the request's error."""
        item = await self._items.get()
        if isinstance(item, SplitserveError):
            raise item
        return item

    def finish(self, choice: int) -> None:
        """The consumer has seen enough of a choice: the worker need not go on with it."""
        if not self._over:
            self._on_finish(choice)

    def close(self) -> None:
        """The consumer has gone: cancels at the worker unless the request has ended there."""
        self._over = True
        self._on_close()
