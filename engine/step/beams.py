"""Beam searches: from a step's logits to the sequences of the next step, and to answers.

    prompt computed -> its candidates -> beams, forks of one sequence on its blocks
    every beam      -> its candidates, kept until all beams of the request have theirs (a step may
                       have room for a part of them) -> beams of the next step: a sequence goes on,
                       is forked, or lets its blocks go
    over            -> the best answers, all told in one frame

Nothing is told before the end, but for how far it has come. A search that loses its blocks
therefore starts over, from its prompt; it was admitted only because it fits when it is alone
(requests/check.py).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ordered

import torch

from cluster.errors import InternalError
from cluster.generation import GeneratedToken
from engine.memory.block_pool import Hold
from engine.sampling.beam_candidates import candidates
from engine.sampling.logits import end_token_ids
from engine.step.requests.beam_search import BeamSearchState, Candidates
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence
from engine.step.requests.table import RequestTable
from engine.step.telling.frame_writer import FrameWriter


class Beams:
    """Of one engine. Not asked while no request searches."""

    def __init__(
        self,
        table: RequestTable,
        writer: FrameWriter,
        eos_token_ids: Ordered[int],
        *,
        on_first: Callable[[Request], None],
        leave_prefill: Callable[[Request], None],
    ) -> None:
        """`on_first`: its candidates are known, told or not; `leave_prefill`: and its prompt's KV
        is here."""
        self._table = table
        self._writer = writer
        self._eos_token_ids = tuple(eos_token_ids)
        self._on_first = on_first
        self._leave_prefill = leave_prefill

    def advance(self, logits: torch.Tensor, sequences: Ordered[Sequence]) -> int:
        """Sequences of searches whose last token was computed: `logits` is float32
        [len(sequences), vocab_size]. Returns how many rows could be used."""
        num_used = 0
        for request in self._table.of(sequences):
            rows = [row for row, s in enumerate(sequences) if s.request_id == request.request_id]
            if request.search is None:
                num_used += self._end_prompt(request, logits[rows])
            else:
                own = [sequences[row] for row in rows]
                num_used += self._take(request, request.search, own, logits[rows])
        return num_used

    def seed(self, request: Request, token: GeneratedToken) -> None:
        """A first token with its candidates, of a prompt that was computed elsewhere. Raises
        InternalError for what no search can begin with."""
        wanted = self._num_searched(request)
        if len(token.top) < wanted:
            raise InternalError(
                f"the prefill worker sent {len(token.top)} candidates for a beam search that "
                f"begins with {wanted}"
            )
        self._take_first(request, token)

    def begin(self, request: Request) -> None:
        """The prompt's KV is here, and so are its candidates."""
        leader, tokens = request.leader, request.first_tokens or {}
        state = self._new_state(request)
        request.begin_search(state)
        leader.blocks.turn(Hold.ACTIVE)
        leader.life.advance(SequenceState.DECODING)
        self._go_on(request, state, [tokens[0].top])

    def _end_prompt(self, request: Request, logits: torch.Tensor) -> bool:
        """`logits` is float32 [1, vocab_size]. False: the model failed."""
        if request.first_tokens is None:
            row = self._candidates(request, logits, num_generated=0)[0]
            if row is None:
                self._fail(request, request.leader)
                return False
            token = GeneratedToken(*row[0], row)
            self._take_first(request, token)
            if request.is_export:
                self._writer.token(request, 0, token, None)
        self._leave_prefill(request)
        return True

    def _take_first(self, request: Request, token: GeneratedToken) -> None:
        """A search begins with its candidates once its prompt is here."""
        self._on_first(request)
        request.first_tokens = {0: token}

    def _take(
        self,
        request: Request,
        state: BeamSearchState,
        own: Ordered[Sequence],
        logits: torch.Tensor,
    ) -> int:
        rows = self._candidates(request, logits, num_generated=own[0].num_generated)
        for sequence, row in zip(own, rows, strict=True):
            if row is None:
                self._fail(request, sequence)
                return 0
            request.kept_candidates[sequence] = row
        if len(request.kept_candidates) == len(request.sequences):
            self._go_on(request, state, [request.kept_candidates[s] for s in request.sequences])
        return len(own)

    def _fail(self, request: Request, sequence: Sequence) -> None:
        position = len(sequence.token_ids)
        error = InternalError(f"no token could be chosen at position {position}")
        self._writer.fail(request, error)

    def _candidates(
        self, request: Request, logits: torch.Tensor, *, num_generated: int
    ) -> list[Candidates | None]:
        """Of each row as many as the search looks at, or as are told."""
        bans = num_generated < request.params.min_tokens
        ends = sorted(self._ends(request)) if bans else ()
        wanted = max(self._num_searched(request), request.params.logprobs or 0)
        return candidates(logits, wanted, ends)

    def _num_searched(self, request: Request) -> int:
        """Candidates of a row that the search looks at."""
        assert request.params.beams is not None, "a search is asked for by its beams"
        return request.params.beams.num_candidates(len(self._ends(request)))

    def _new_state(self, request: Request) -> BeamSearchState:
        return BeamSearchState(request.params, self._ends(request))

    def _ends(self, request: Request) -> frozenset[int]:
        return end_token_ids(request.params, self._eos_token_ids)

    def _go_on(self, request: Request, state: BeamSearchState, rows: Ordered[Candidates]) -> None:
        state.advance(rows)
        request.kept_candidates.clear()
        self._writer.searched(request, state.num_tokens)
        if state.is_over:
            self._tell(request, state)
        else:
            self._spread(request, state)

    def _spread(self, request: Request, state: BeamSearchState) -> None:
        """Gives each beam a sequence: the first that continues one takes it over, others are forks
        of it."""
        parents = list(request.sequences)
        kept = {beam.parent for beam in state.beams}
        for index, sequence in enumerate(parents):
            if index not in kept:
                self._table.finish_sequence(request, sequence)
        taken = {parents[index].choice for index in kept}
        free = iter(number for number in range(len(state.beams)) if number not in taken)
        sequences, used = list[Sequence](), set[int]()
        for beam in state.beams:
            parent = parents[beam.parent]
            sequences.append(parent if beam.parent not in used else _fork(parent, next(free)))
            used.add(beam.parent)
        for beam, sequence in zip(state.beams, sequences, strict=True):
            sequence.token_ids.append(beam.token_id)
        request.sequences = sequences

    def _tell(self, request: Request, state: BeamSearchState) -> None:
        for choice, found in enumerate(state.best(request.params.n)):
            *before, last = found.last.all()
            for token in before:
                self._writer.token(request, choice, token, None)
            self._writer.token(request, choice, last, found.reason)
        self._writer.end(request, SequenceState.FINISHED)


def _fork(parent: Sequence, number: int) -> Sequence:
    """Before the parent gets its own next token."""
    fork = parent.fork(number)
    fork.token_ids = list(parent.token_ids)
    return fork
