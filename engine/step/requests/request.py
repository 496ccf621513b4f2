"""One request: what was asked, its sequences, and what is owed to the caller.

one leading sequence computes (or receives) the prompt
    -> first token of each choice: sampled here, or seeded by the prefill worker
    -> open: one sequence per unfinished choice, on shared prompt blocks

An answer that goes on where another engine left it is part of what is computed first. Where several
choices go on, each has a sequence from the beginning, as if all had been preempted.
"""

from __future__ import annotations

from cluster.deadline import Deadline
from cluster.errors import SplitserveError
from cluster.generation import GeneratedToken, Usage
from engine.contract.commands import GenerateRequest, PrefillMode
from engine.sampling.grammars.compiled_grammar import CompiledGrammar
from engine.step.requests.adapter_use import AdapterUse
from engine.step.requests.beam_search import BeamSearchState, Candidates
from engine.step.requests.draft_tally import DraftTally
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.sequence import Sequence


class Request:
    """The engine's record; lives from Submit until RequestEnded."""

    def __init__(
        self, body: GenerateRequest, sequences: list[Sequence], *, deadline: Deadline
    ) -> None:
        """`sequences`: of the choices that go on, or the leader alone."""
        self.body = body
        self.request_id = body.request_id
        self.params = body.sampling
        self.deadline = deadline
        self.sequences = sequences
        """Those that are not over; the leader alone before the request is open."""
        self.choices = body.choices
        """Those that get tokens here."""
        self.is_resumed = bool(body.resume)
        """Its reader has tokens already."""
        self.is_open = len(sequences) > 1
        self.is_export = body.mode.is_export
        """Only the prompt is computed, or found, for a reader elsewhere."""
        self.is_kept = body.mode is PrefillMode.KEEP
        """It is here for the prefix cache, and never decodes."""
        self.num_seats = _seats_at_first(body, is_open=self.is_open)
        """Sequences that one sequence of this request stands for, now or soon."""
        self.is_remote = body.mode.is_remote
        """The prompt is computed elsewhere; ends with PrefillLocally, or when it has arrived."""
        self.goes_local = False
        """PrefillLocally has come, but reads into the blocks are still in flight."""
        self.is_started = False
        self.is_over = False
        self.first_tokens: dict[int, GeneratedToken] | None = None
        """Choices that go on after their first token; None: not known yet."""
        self.grammar: CompiledGrammar | None = None
        """What every choice must be."""
        self.adapter: AdapterUse | None = None
        """None: the model alone."""
        self.waits_on_others = False
        """It has a grammar or an adapter, which may fail."""
        self.search: BeamSearchState | None = None
        """The sequences are its beams, in their order; None: none is asked for, or not begun."""
        self.kept_candidates: dict[Sequence, Candidates] = {}
        """Of beams that wait for the others to be computed."""
        self.delivered: set[int] = set()
        """Indices of prompt blocks whose KV arrived."""
        self.num_to_compute = body.num_known_tokens
        """Prompt tokens that were in no cache when it came: how long its prompt should take."""
        self.num_announced = body.first_block
        """EXPORT: blocks before this index need no (further) announcement."""
        self.num_completion_tokens = 0
        self.num_cached_tokens = 0
        self.drafted = DraftTally()
        self.first_token_s: float | None = None
        self._first_life = self.leader.life

    @property
    def arrived_s(self) -> float:
        """When it was submitted."""
        return self._entered(SequenceState.QUEUED) or 0.0

    @property
    def leader(self) -> Sequence:
        """The sequence that has the prompt."""
        return self.sequences[0]

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        tally = self.drafted
        return Usage(
            prompt_tokens=len(self.body.token_ids),
            completion_tokens=self.num_completion_tokens,
            cached_tokens=self.num_cached_tokens,
            accepted_prediction_tokens=tally.num_predicted_kept,
            rejected_prediction_tokens=tally.num_predicted_tried - tally.num_predicted_kept,
        )

    @property
    def may_start(self) -> bool:
        """False while its grammar is compiled or its adapter read, or where that has failed."""
        if self.adapter is not None and self.adapter.slot is None:
            return False
        return self.grammar is None or (self.grammar.is_ready and self.grammar.error is None)

    @property
    def error(self) -> SplitserveError | None:
        """Why it can never be computed, found out after it was submitted."""
        if self.adapter is not None and self.adapter.error is not None:
            return self.adapter.error
        return None if self.grammar is None else self.grammar.error

    def lets_in(self, sequence: Sequence) -> bool:
        """Whether one that is queued may be admitted. Choices that go on together are, one at a
        time: the next finds in the cache what the one before has computed of their prompt."""
        states = (SequenceState.QUEUED, SequenceState.PREFILLING)
        return next(s for s in self.sequences if s.life.state in states) is sequence

    def open(self) -> None:
        """Gives every unfinished choice its own sequence, on the leader's blocks."""
        leader, tokens = self.leader, self.first_tokens or {}
        choices = list(tokens)
        self.sequences += [leader.fork(choice) for choice in choices[1:]]
        leader.choice = choices[0]
        for sequence in self.sequences:
            sequence.token_ids.append(tokens[sequence.choice].token_id)
        self.is_open = self.is_started = True
        self.num_seats = 1
        self.is_remote = False

    def begin_search(self, search: BeamSearchState) -> None:
        """The leader's blocks have the prompt: its beams follow."""
        self.search = search
        self.is_open = self.is_started = True
        self.num_seats = 1
        self.is_remote = False

    def start_over(self) -> None:
        """A search that loses its blocks: the leader, the only sequence left, is its prompt again,
        and without blocks."""
        assert self.params.beams is not None, "of other requests tokens have been told"
        self.search, self.first_tokens = None, None
        self.kept_candidates.clear()
        self.leader.begin_again()
        self.is_open = False
        self.num_seats = self.params.beams.width

    def queue_ms(self) -> float:
        """From Submit until blocks were reserved."""
        left = [self._entered(s) for s in (SequenceState.RECEIVING, SequenceState.PREFILLING)]
        return self._elapsed_ms(SequenceState.QUEUED, min((t for t in left if t), default=None))

    def prefill_ms(self) -> float:
        """From the first chunk until the first token; 0 when the prompt came from elsewhere."""
        return self._elapsed_ms(SequenceState.PREFILLING, self.first_token_s)

    def _entered(self, state: SequenceState) -> float | None:
        return self._first_life.entered_s(state)

    def _elapsed_ms(self, since: SequenceState, until_s: float | None) -> float:
        since_s = self._entered(since)
        if since_s is None or until_s is None:
            return 0.0
        return max(0.0, (until_s - since_s) * 1e3)


def _seats_at_first(body: GenerateRequest, *, is_open: bool) -> int:
    """Of one of its sequences, when it comes."""
    if body.mode is PrefillMode.KEEP:
        return 0
    if body.mode.is_export or is_open:
        return 1
    beams = body.sampling.beams
    return len(body.choices) if beams is None else beams.width
