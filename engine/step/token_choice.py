"""What happens when a sequence's last known token has been computed: the next one is chosen.

leader of a closed request   first token of every choice -> export, or open one sequence each
sequence of an open request  one more token -> goes on, or is finished
                             a Finish from outside -> is finished
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ordered

import structlog
import torch

from cluster.deadline import Clock
from cluster.errors import InternalError, SplitserveError
from cluster.generation import FinishReason, GeneratedToken
from cluster.sampling import SamplingParams
from engine.memory.block_pool import Hold
from engine.runner.model_runner import Replica
from engine.sampling.logits import SamplingRow, end_token_ids
from engine.sampling.sampler import Sampler
from engine.step.beams import Beams
from engine.step.masking import Masking
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.request import Request
from engine.step.requests.seed_check import check_choices, check_vocabulary
from engine.step.requests.sequence import Sequence
from engine.step.requests.table import RequestTable
from engine.step.step_health import is_device_error
from engine.step.telling.frame_writer import FrameWriter
from kernels.token_mask import TokenMask

_LOG = structlog.get_logger()


class TokenChoice:
    """Gives tokens to sequences, and applies the rules for their end."""

    def __init__(
        self,
        replica: Replica,
        table: RequestTable,
        writer: FrameWriter,
        *,
        masking: Masking,
        clock: Clock,
    ) -> None:
        self._vocab_size = replica.vocab_size
        self._eos_token_ids = replica.eos_token_ids
        self._sampler = Sampler(replica.eos_token_ids)
        self._beams = Beams(
            table,
            writer,
            replica.eos_token_ids,
            on_first=self._note_first,
            leave_prefill=self._leave_prefill,
        )
        self._table = table
        self._writer = writer
        self._masking = masking
        self._clock = clock

    def advance(self, logits: torch.Tensor, completed: Ordered[Sequence]) -> int:
        """`logits` is float32 [len(completed), vocab_size]: one row per sequence.

        Returns how many rows gave a token.
        """
        num_used = 0
        if self._table.num_searches:
            own, others = self._table.searches_among(completed)
            num_used = self.advance_searches(logits[own], [completed[row] for row in own])
            logits, completed = logits[others], [completed[row] for row in others]
        rows = [self._rows(sequence, row) for row, sequence in enumerate(completed)]
        all_drawn = self.draw(logits, [row for group in rows for row in group])
        drawn = iter(all_drawn)
        for sequence, group in zip(completed, rows, strict=True):
            tokens = {row.choice: next(drawn) for row in group}
            request = self._table.get(sequence.request_id)
            if request is not None:  # else it has failed with another of its choices
                self._give(request, sequence, tokens)
        return num_used + sum(token is not None for token in all_drawn)

    def advance_searches(self, logits: torch.Tensor, beams: Ordered[Sequence]) -> int:
        """As `advance`, of sequences that are all beams of searches."""
        return self._beams.advance(logits, beams)

    def give(self, sequences: Ordered[Sequence], token_ids: Ordered[int | None]) -> int:
        """Tokens of open requests that were chosen where the logits are; None: there was none.

        Those of sequences that are over are dropped. Returns how many there were.
        """
        for sequence, token_id in zip(sequences, token_ids, strict=True):
            self.give_one(sequence, None if token_id is None else GeneratedToken(token_id))
        return sum(token_id is not None for token_id in token_ids)

    def give_one(self, sequence: Sequence, token: GeneratedToken | None) -> None:
        """The next token of a sequence of an open request, unless that is over."""
        request = self._table.get(sequence.request_id)
        if request is not None and not sequence.life.is_over:
            self._give(request, sequence, {sequence.choice: token})

    def seed(self, request: Request, tokens: dict[int, GeneratedToken]) -> None:
        """First tokens that a prefill worker sampled. Raises InternalError when they do not fit."""
        check_choices(request, tokens)
        check_vocabulary(tokens, self._vocab_size)
        if request.params.beams is not None:
            self._beams.seed(request, tokens[0])
        else:
            self._take_first_tokens(request, tokens)

    def open(self, request: Request) -> None:
        """Every unfinished choice decodes from now on, in a sequence of its own; or every beam."""
        if request.params.beams is not None:
            self._beams.begin(request)
            return
        request.open()
        for sequence in request.sequences:
            sequence.blocks.turn(Hold.ACTIVE)
            sequence.life.advance(SequenceState.DECODING)

    def finish(self, request: Request, choices: Iterable[int]) -> None:
        """Choices that somebody else has seen the end of: their blocks are free at once."""
        if request.params.beams is not None:
            return  # what is told of them is their end
        for choice in choices:
            if request.is_open:
                for sequence in [s for s in request.sequences if s.choice == choice]:
                    self._finish_sequence(request, sequence)
            elif request.first_tokens:
                self._forget_first_token(request, request.first_tokens, choice)

    def _forget_first_token(
        self, request: Request, first_tokens: dict[int, GeneratedToken], choice: int
    ) -> None:
        """Before the request is open, a choice is no more than its first token."""
        first_tokens.pop(choice, None)
        if not first_tokens:
            self._writer.end(request, SequenceState.FINISHED)

    def _finish_sequence(self, request: Request, sequence: Sequence) -> None:
        if len(request.sequences) > 1:
            self._table.finish_sequence(request, sequence)
        else:
            self._writer.end(request, SequenceState.FINISHED)

    def masks(
        self, request: Request, sequence: Sequence, num_places: int = 1
    ) -> list[TokenMask | None] | None:
        """What its grammar lets come behind 0, 1, ... tokens of its draft; of each None: any token.
        None alone: the request is over, as its grammar cannot be followed, or since long."""
        if request.is_over:
            return None
        if request.grammar is None:
            return [None] * num_places
        try:
            if num_places == 1:  # as mostly, and quicker
                return [self._masking.allowed(sequence)]
            return [self._masking.allowed(sequence, place) for place in range(num_places)]
        except SplitserveError as failure:
            self._writer.fail(request, failure)
            return None

    def _rows(self, sequence: Sequence, logit_row: int) -> list[SamplingRow]:
        """What to sample from this sequence's logits."""
        request = self._table.get(sequence.request_id)
        choices: Iterable[int] = ()
        allowed = None
        if request is not None and request.is_open:
            choices = (sequence.choice,)
        elif request is not None and request.first_tokens is None:
            choices = request.choices
        if request is not None and choices:
            if (masks := self.masks(request, sequence)) is None:
                return []
            [allowed] = masks
        return [
            sequence.row(request.params, logit_row, choice=choice, allowed=allowed)
            for choice in choices
            if request is not None
        ]

    def draw(self, logits: torch.Tensor, rows: list[SamplingRow]) -> list[GeneratedToken | None]:
        """All rows at once; row by row when that fails, so that only the culprit gets None.

        A device that is lost is everybody's fault: that error goes on.
        """
        if not rows:
            return []
        try:
            return self._sampler.sample(logits, rows)
        except Exception as error:
            if is_device_error(error):
                raise
            _LOG.exception(
                "tokens could not be sampled together; each row is tried alone", num_rows=len(rows)
            )
            return [self._draw_one(logits, row) for row in rows]

    def _draw_one(self, logits: torch.Tensor, row: SamplingRow) -> GeneratedToken | None:
        try:
            return self._sampler.sample(logits, [row])[0]
        except Exception as error:
            if is_device_error(error):
                raise
            _LOG.exception("a token could not be sampled; its request ends", choice=row.choice)
            return None

    def _give(
        self, request: Request, sequence: Sequence, drawn: dict[int, GeneratedToken | None]
    ) -> None:
        tokens = {choice: token for choice, token in drawn.items() if token is not None}
        if len(tokens) < len(drawn):
            position = len(sequence.token_ids)
            error = InternalError(f"no token could be chosen at position {position}")
            self._writer.fail(request, error)
        elif request.is_open:
            self._append(request, sequence, tokens[sequence.choice])
        else:
            if request.first_tokens is None:
                self._take_first_tokens(request, tokens)
            self._leave_prefill(request)

    def _append(self, request: Request, sequence: Sequence, token: GeneratedToken) -> None:
        sequence.token_ids.append(token.token_id)
        reason = _finish_reason(
            token.token_id, sequence.num_generated, request.params, self._eos_token_ids
        )
        self._note_first(request)
        self._writer.token(request, sequence.choice, token, reason)
        if reason is None:
            if sequence.life.state is SequenceState.PREFILLING:  # it had been preempted
                sequence.life.advance(SequenceState.DECODING)
        else:
            self._finish_sequence(request, sequence)

    def _take_first_tokens(self, request: Request, tokens: dict[int, GeneratedToken]) -> None:
        """Announces them; the request ends here when no choice goes on."""
        self._note_first(request)
        request.first_tokens = {}
        place = request.leader.num_generated + 1
        for choice, token in sorted(tokens.items()):
            reason = _finish_reason(token.token_id, place, request.params, self._eos_token_ids)
            self._writer.token(request, choice, token, reason)
            if reason is None:
                request.first_tokens[choice] = token
        if not request.first_tokens:
            self._writer.end(request, SequenceState.FINISHED)

    def _note_first(self, request: Request) -> None:
        """Tokens of it are about to be told."""
        if request.first_token_s is None:
            request.first_token_s = self._clock()
            self._writer.computed(request)

    def _leave_prefill(self, request: Request) -> None:
        """The prompt is computed and the first tokens are known."""
        if request.is_over:
            return
        if request.is_export:
            request.leader.blocks.turn(Hold.EXPORTED)
            request.leader.life.advance(SequenceState.EXPORTED)
        else:
            self.open(request)


def _finish_reason(
    token_id: int, num_generated: int, params: SamplingParams, eos_token_ids: Ordered[int]
) -> FinishReason | None:
    """Why a choice ends with this token, its `num_generated`-th; None: it goes on."""
    if num_generated > params.min_tokens and token_id in end_token_ids(params, eos_token_ids):
        return FinishReason.STOP
    return FinishReason.LENGTH if num_generated >= params.max_tokens else None
