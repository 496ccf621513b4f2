"""Commands, applied between steps."""

from __future__ import annotations

import structlog

from cluster.errors import AdapterGone, Cancelled, InternalError, SplitserveError
from engine.contract.commands import (
    Cancel,
    Deliver,
    Finish,
    GenerateRequest,
    PrefillLocally,
    PrefillMode,
    ReleaseExport,
    Seed,
)
from engine.runner.model_runner import Replica
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.step import split_prompt
from engine.step.adapting import Adapting
from engine.step.placement import Placement
from engine.step.requests.adapter_use import AdapterUse
from engine.step.requests.check import check_request
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.request import Request
from engine.step.requests.table import RequestTable
from engine.step.telling.frame_writer import FrameWriter
from engine.step.token_choice import TokenChoice

_LOG = structlog.get_logger()

RequestCommand = Cancel | Finish | Deliver | Seed | PrefillLocally | ReleaseExport
"""What concerns one request that was submitted before."""


class CommandHandler:
    """Changes requests as commands say. A failure ends the request that it concerns."""

    def __init__(
        self,
        replica: Replica,
        table: RequestTable,
        writer: FrameWriter,
        *,
        placement: Placement,
        token_choice: TokenChoice,
        grammars: GrammarCompiler | None,
        adapters: Adapting | None = None,
    ) -> None:
        self._replica = replica
        self._table = table
        self._writer = writer
        self._placement = placement
        self._token_choice = token_choice
        self._grammars = grammars
        self._adapters = adapters

    def submit(self, body: GenerateRequest) -> None:
        """Queues a request, or ends it at once when it can never be served."""
        if self._table.get(body.request_id) is not None:
            _LOG.warning("a request came twice; the second is ignored", request_id=body.request_id)
            return
        try:
            check_request(
                body,
                vocab_size=self._replica.vocab_size,
                max_context_tokens=self._replica.max_context_tokens,
                pool_tokens=self._placement.homes.blocks_each * self._placement.block_size,
                follows_grammars=self._grammars is not None,
                pooling=None if (head := self._replica.pooled_head) is None else head.pooling,
                eos_token_ids=self._replica.eos_token_ids,
                block_size=self._placement.block_size,
            )
            is_computed = body.mode is not PrefillMode.KEEP
            use = self._enter(body) if body.adapter and is_computed else None
        except SplitserveError as error:
            self._writer.refuse(body, error)
        else:
            request = self._table.add(body)
            if use is not None:
                self._table.adapt(request, use)
            if self._grammars is not None and body.sampling.grammar is not None:
                self._table.constrain(request, self._grammars.compile(body.sampling.grammar))
            if body.mode is PrefillMode.POOL and head is not None:
                leader = request.leader
                leader.is_pooled = True
                leader.num_scored = 0 if head.pooling.reads_every_row else None
            request.num_to_compute = self._placement.num_uncached(request)
            if body.mode is PrefillMode.CACHED:
                split_prompt.pin(request, self._placement)
                self._writer.started(request, request.leader)
                self._writer.prefilled(split_prompt.announce(request, self._placement))

    def _enter(self, body: GenerateRequest) -> AdapterUse:
        """Raises AdapterGone."""
        if self._adapters is None:
            raise AdapterGone("this worker loads no adapters; start it with --adapters")
        return self._adapters.enter(body.adapter, body.owner)

    def apply(self, command: RequestCommand) -> None:
        """Applies a command to its request; one that is unknown, or over, is ignored."""
        request = self._table.get(command.request_id)
        if request is None:
            return
        try:
            self._apply(request, command)
        except Exception:
            _LOG.exception(
                "a command failed; its request ends",
                command=type(command).__name__,
                request_id=request.request_id,
            )
            self._writer.fail(
                request,
                InternalError(
                    "the engine failed at a command for this request; its log has the cause"
                ),
            )

    def turn_local_if_free(self, request: Request) -> None:
        """Goes on here after PrefillLocally, unless reads into the blocks are in flight."""
        if not self._table.has_reads(request) and split_prompt.turn_local(request):
            self._writer.started(request, request.leader)

    def _apply(self, request: Request, command: RequestCommand) -> None:
        state = request.leader.life.state
        match command:
            case Cancel():
                error = Cancelled("the caller cancelled the request")
                self._writer.end(request, SequenceState.CANCELLED, error)
            case Finish() if not request.is_export:
                self._token_choice.finish(request, command.choices)
            case ReleaseExport() if state is SequenceState.EXPORTED:
                self._writer.end(request, SequenceState.FINISHED)
            case ReleaseExport():
                error = Cancelled("the reader left before the prompt was computed")
                self._writer.end(request, SequenceState.CANCELLED, error)
            case PrefillLocally() if state is SequenceState.RECEIVING:
                split_prompt.note_scores(request, command.num_scored)
                request.goes_local = True
                self.turn_local_if_free(request)
            case PrefillLocally():
                request.is_remote = False
            case Deliver() if state is SequenceState.RECEIVING:
                split_prompt.deliver(request, command, self._placement)
                self._open_if_complete(request)
            case Seed() if state is SequenceState.RECEIVING and request.first_tokens is None:
                split_prompt.note_scores(request, request.leader.num_prompt)
                tokens = {item.choice: item.token for item in command.tokens}
                self._token_choice.seed(request, tokens)
                self._open_if_complete(request)

    def _open_if_complete(self, request: Request) -> None:
        if not request.is_over and split_prompt.is_complete(request):
            self._token_choice.open(request)
