"""One prefill worker at work for one request: its stream, and the verdict on it.

read -> events to the handoff ... -> verdict: succeeded, or the error for which it is given up
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc

from cluster.errors import InternalError, SplitserveError, TransferFailed, WorkerLost
from cluster.logs import get_logger
from cluster.rpc import error_of
from cluster.wire import token_from_wire
from decode_worker.prefill_peers import PrefillPeer
from engine.messages import ChoiceToken
from protos import handoff_pb2

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

    def first_tokens(self, first: handoff_pb2.FirstToken, *, num_choices: int) -> list[ChoiceToken]:
        """One token per choice. Raises TransferFailed for any other set."""
        tokens = [ChoiceToken(item.choice, token_from_wire(item.token)) for item in first.tokens]
        choices = sorted(token.choice for token in tokens)
        if choices != list(range(num_choices)):
            raise TransferFailed(
                f"{self.worker_id} sampled choices {choices}; {num_choices} were asked for"
            )
        return tokens
