"""One prefill worker at work for one request: its stream, and the verdict on it.

read -> events to the handoff ... -> verdict: succeeded, or the error for which it is given up
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import grpc

from cluster.errors import InternalError, SplitserveError, TransferFailed, WorkerLost
from cluster.generation import GeneratedToken
from cluster.logs import get_logger
from cluster.rpc import error_of
from cluster.sampling import MAX_LOGPROBS
from cluster.wire import token_from_wire
from decode_worker.prefill_peers import PrefillPeer
from engine.contract.commands import ChoiceToken
from protos import handoff_pb2

MAX_TOOK_MS = 24 * 3600 * 1000.0
_log = get_logger("decode_worker.handoff")


class PrefillSource:
    """`verdict` is set once, by whoever knows first. All calls from the event loop."""

    def __init__(self, peer: PrefillPeer) -> None:
        self.worker_id = peer.worker_id
        self.incarnation = peer.incarnation
        self.cached_tokens = 0
        self.is_done = False
        """Its stream has said Done."""
        self.verdict: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def succeed(self) -> None:
        """Every block is verified and the first token is known."""
        if not self.verdict.done():
            self.verdict.set_result(None)

    def fail(self, error: SplitserveError) -> None:
        """The next source, please."""
        if not self.verdict.done():
            self.verdict.set_exception(error)

    async def read(
        self,
        call: grpc.aio.UnaryStreamCall,
        take: Callable[[handoff_pb2.PrefillEvent], None],
    ) -> None:
        """Hands every event to `take` until cancelled; the stream's end is a failure."""
        try:
            async for event in call:
                take(event)
            self.fail(WorkerLost(f"{self.worker_id} ended the stream before its reader did"))
        except asyncio.CancelledError:  # by the handoff, after the verdict; or its channel's end
            self.fail(WorkerLost(f"the connection to {self.worker_id} was closed"))
            raise
        except grpc.aio.AioRpcError as failure:
            self.fail(error_of(failure))
        except SplitserveError as error:
            self.fail(error)
        except Exception as error:
            _log.exception("a handoff event could not be handled")
            self.fail(InternalError(f"handoff from {self.worker_id}: {type(error).__name__}"))

    def first_tokens(
        self, first: handoff_pb2.FirstToken, *, num_choices: int, vocab_size: int
    ) -> list[ChoiceToken]:
        """One token per choice. Raises TransferFailed for what no request can be given."""
        choices = sorted(item.choice for item in first.tokens)
        if choices != list(range(num_choices)):
            raise TransferFailed(
                f"{self.worker_id} sampled {len(choices)} choices, the first ones {choices[:8]}; "
                f"{num_choices} were asked for"
            )
        tokens = [ChoiceToken(item.choice, token_from_wire(item.token)) for item in first.tokens]
        for item in tokens:
            self._check_token(item.token, vocab_size)
        for name in ("queue_ms", "prefill_ms"):
            took_ms = getattr(first, name)
            if not 0 <= took_ms < MAX_TOOK_MS:
                raise TransferFailed(f"{self.worker_id} says that {name} is {took_ms}")
        return tokens

    def _check_token(self, token: GeneratedToken, vocab_size: int) -> None:
        ids = [token.token_id, *(token_id for token_id, _ in token.top)]
        if max(ids) >= vocab_size or len(token.top) > MAX_LOGPROBS:
            raise TransferFailed(
                f"{self.worker_id} sampled token {max(ids)} with {len(token.top)} alternatives; "
                f"there are {vocab_size} tokens, and {MAX_LOGPROBS} alternatives at most"
            )
        logprobs = [token.logprob or 0.0, *(logprob for _, logprob in token.top)]
        if any(math.isnan(logprob) for logprob in logprobs):
            raise TransferFailed(f"{self.worker_id} sampled a token with a logprob of NaN")

    def accepted(self, accepted: handoff_pb2.Accepted, *, num_prompt_tokens: int) -> None:
        """What it has cached of the prompt. Raises TransferFailed for more than there is."""
        if accepted.cached_tokens > num_prompt_tokens:
            raise TransferFailed(
                f"{self.worker_id} says that {accepted.cached_tokens} tokens are cached; the "
                f"prompt has {num_prompt_tokens}"
            )
        self.cached_tokens = accepted.cached_tokens
