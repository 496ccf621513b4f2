"""What one router is told next: everything since the last write, in one frame.

    add... -> flush (once per engine step) -> next_frame -> written to the stream

A router that reads slowly gets fewer, larger frames; what waits is bounded by what its requests can
still produce.
"""

from __future__ import annotations

import asyncio

from cluster.errors import SplitserveError, status_of
from cluster.generation import EngineLoad, Timing, Usage
from cluster.identity import WorkerKey
from cluster.prompt_stages import PromptStages, stages_to_wire
from cluster.wire import (
    load_to_wire,
    prompt_token_to_wire,
    reason_to_wire,
    timing_to_wire,
    token_to_wire,
    usage_to_wire,
)
from engine.contract.messages import PromptScored, TokenEvent
from protos import worker_pb2


class SessionOutlet:
    """A frame in the making. All calls from the event loop."""

    def __init__(self) -> None:
        self._frame = worker_pb2.WorkerFrame()
        self._tokens: dict[tuple[str, int], worker_pb2.Tokens] = {}
        self._is_empty = True
        self._is_closed = False
        self._wake = asyncio.Event()

    def add_token(self, request_id: str, event: TokenEvent) -> None:
        """One more token of one choice."""
        key = (request_id, event.choice)
        tokens = self._tokens.get(key)
        if tokens is None:
            tokens = self._frame.tokens.add(request_id=request_id, choice=event.choice)
            self._tokens[key] = tokens
        tokens.tokens.append(token_to_wire(event.token))
        tokens.finish_reason = reason_to_wire(event.finish_reason)
        self._is_empty = False

    def add_prompt(self, request_id: str, scored: PromptScored) -> None:
        """Tokens of the prompt with their logprobs."""
        self._frame.prompts.add(
            request_id=request_id,
            first_index=scored.first_index,
            tokens=map(prompt_token_to_wire, scored.tokens),
        )
        self._is_empty = False

    def add_computed(
        self, request_id: str, cached_tokens: int, timing: Timing, stages: PromptStages
    ) -> None:
        """The first tokens come in this frame."""
        self._frame.computed.add(
            request_id=request_id,
            cached_tokens=cached_tokens,
            timing=timing_to_wire(timing),
            stages=stages_to_wire(stages),
        )
        self._is_empty = False

    def add_searched(self, request_id: str, num_tokens: int) -> None:
        """The newest count; a frame that waits may have several."""
        self._frame.searched.add(request_id=request_id, num_tokens=num_tokens)
        self._is_empty = False

    def add_ended(
        self,
        request_id: str,
        *,
        usage: Usage,
        timing: Timing | None = None,
        stages: PromptStages | None = None,
        error: SplitserveError | None = None,
    ) -> None:
        """The last word on a request."""
        ended = self._frame.ended.add(request_id=request_id, usage=usage_to_wire(usage))
        if timing is not None:
            ended.timing.CopyFrom(timing_to_wire(timing))
        if stages is not None:
            ended.stages.CopyFrom(stages_to_wire(stages))
        if error is not None:
            ended.error.code = status_of(error).code
            ended.error.message = error.message
        self._is_empty = False

    def add_handoff(self, worker: WorkerKey, *, failed: bool) -> None:
        """The router may want to leave a prefill worker that fails alone for a while."""
        self._frame.handoffs.add(
            worker_id=worker.worker_id, incarnation=worker.incarnation, failed=failed
        )
        self._is_empty = False

    def add_load(self, load: EngineLoad) -> None:
        """The worker's numbers have changed."""
        self._frame.load.CopyFrom(load_to_wire(load))
        self._is_empty = False

    def flush(self) -> None:
        """The step is over: what was added may go."""
        if not self._is_empty:
            self._wake.set()

    def close(self) -> None:
        """Nothing will be added any more: `next_frame` gives what is left, then None."""
        self._is_closed = True
        self._wake.set()

    async def next_frame(self) -> worker_pb2.WorkerFrame | None:
        """Waits for a flush; None after `close`. One caller."""
        await self._wake.wait()
        if self._is_empty and self._is_closed:
            return None
        frame, self._frame = self._frame, worker_pb2.WorkerFrame()
        self._tokens.clear()
        self._is_empty = True
        if not self._is_closed:
            self._wake.clear()
        return frame
