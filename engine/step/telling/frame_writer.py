"""What the engine will say in its next frame, and the only door through which a request ends."""

from __future__ import annotations

from cluster.errors import SplitserveError, status_of
from cluster.generation import FinishReason, GeneratedToken, Usage
from engine.contract.commands import GenerateRequest
from engine.contract.messages import (
    Frame,
    Pooled,
    Prefilled,
    PromptComputed,
    RequestEnded,
    Searched,
    Started,
    TokenEvent,
)
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence
from engine.step.requests.table import RequestTable


class FrameWriter:
    """A frame in the making."""

    def __init__(self, table: RequestTable) -> None:
        self._table = table
        self.frame = Frame()

    def take(self) -> Frame:
        """The frame so far; a new one begins."""
        frame, self.frame = self.frame, Frame()
        return frame

    def started(self, request: Request, sequence: Sequence) -> None:
        """A first chunk is scheduled; said once per request."""
        if not request.is_started:
            request.is_started = True
            request.num_cached_tokens = sequence.num_computed
            self.frame.started.append(
                Started(request.request_id, sequence.num_computed, request.queue_ms())
            )

    def computed(self, request: Request) -> None:
        """Its first tokens are known. A reader of an export learns that otherwise."""
        if not request.is_export:
            self.frame.computed.append(
                PromptComputed(
                    request_id=request.request_id,
                    cached_tokens=request.num_cached_tokens,
                    queue_ms=request.queue_ms(),
                    prefill_ms=request.prefill_ms(),
                )
            )

    def searched(self, request: Request, num_tokens: int) -> None:
        """So many its beams have got. Who reads an export asks for the first token alone."""
        if not request.is_export:
            self.frame.searched.append(Searched(request.request_id, num_tokens))

    def prefilled(self, blocks: Prefilled | None) -> None:
        """Blocks of an export that are final; None: there are none."""
        if blocks is not None:
            self.frame.prefilled.append(blocks)

    def pooled(self, request: Request, values: bytes) -> None:
        """All that a POOL request asks for: it ends with that."""
        self.frame.pooled.append(Pooled(request.request_id, values))
        self.end(request, SequenceState.FINISHED)

    def token(
        self, request: Request, choice: int, token: GeneratedToken, reason: FinishReason | None
    ) -> None:
        """One more token of one choice."""
        request.num_completion_tokens += 1
        self.frame.tokens.append(TokenEvent(request.request_id, choice, token, reason))

    def end(
        self, request: Request, state: SequenceState, error: SplitserveError | None = None
    ) -> None:
        """The last word on a request."""
        self._table.end(request, state)
        self.frame.ended.append(_last_word(request, error))

    def fail(self, request: Request, error: SplitserveError) -> None:
        """The request ends with an error of its own."""
        self.end(request, SequenceState.FAILED, error)

    def refuse(self, body: GenerateRequest, error: SplitserveError) -> None:
        """A request that never entered."""
        self.frame.ended.append(
            RequestEnded(
                request_id=body.request_id,
                usage=Usage(len(body.token_ids), 0, 0),
                error_code=status_of(error).code,
                error_message=error.message,
            )
        )


def _last_word(request: Request, error: SplitserveError | None) -> RequestEnded:
    return RequestEnded(
        request_id=request.request_id,
        usage=request.usage,
        queue_ms=request.queue_ms(),
        prefill_ms=request.prefill_ms(),
        drafts=request.drafted.told,
        error_code=status_of(error).code if error else "",
        error_message=error.message if error else "",
    )
