"""Drafts by a smaller model, of all sequences together: one forward for each token of a draft.

    a sequence that is new here    its tokens are read, a part in each step, once drafts would pay
    one that is read               the tokens that came since are read, and the next ones guessed
    after the verification         guesses that were right are read; the others are written over

What a draft costs is measured, and in the plan's goodput: where it does not pay nothing is read or
guessed, and the step is the plain one. A model that fails costs its drafts, and after MAX_FAILURES
nothing any more.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import torch

from cluster.deadline import Clock
from engine.contract.draft_numbers import DrafterKind
from engine.runner.model_runner import DraftModel, DrawingRunner, Replica
from engine.step.batch.step_work import Wanted
from engine.step.drafters.draft_rows import ReadRow, Rounds, reading
from engine.step.drafters.draft_sampling import GuessSampler, Making
from engine.step.drafters.drafter import NOTHING, DraftProspect, DraftTime
from engine.step.drafters.guess_care import GuessCare
from engine.step.drafters.launched_guesses import guess_by_launches
from engine.step.drafting.draft import Draft
from engine.step.drafting.draft_kv import DraftKv
from engine.step.drafting.kept_rates import OwnKeptRates
from engine.step.drafting.shared_draft_kv import SharedDraftKv
from engine.step.planning.draft_lengths import LEAST_GAIN, speedup
from engine.step.planning.step_cost import StepCost
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence

MOST_LAG = 16
"""Tokens that are read in the step that guesses on: those of the steps since the last draft."""
READ_FACTOR = 1.0
"""Of a plain step's time, what reading may add to one."""
FEWEST_READ = 16
"""Tokens in a step, whatever they take."""
LIKELY_LEFT = 256
"""Tokens that an answer is expected to go on for, at most: it may end before `max_tokens`."""


class ModelDrafter:
    """A Drafter."""

    kind = DrafterKind.MODEL
    has_price = True
    states_reader = None

    def __init__(
        self,
        model: DraftModel,
        replica: Replica,
        *,
        block_size: int,
        max_batch_tokens: int,
        clock: Clock,
    ) -> None:
        self._model = model
        runner, fits = model.runner, model.vocab_size <= replica.vocab_size
        self._drawing = runner if isinstance(runner, DrawingRunner) and fits else None
        """Draws where its logits are; tokens that the target does not have the host leaves out."""
        self._sampler = GuessSampler(replica.eos_token_ids, replica.vocab_size)
        self._block_size, self._max_batch_tokens = block_size, max_batch_tokens
        self._kv = SharedDraftKv(block_size)
        self._care = GuessCare(
            self.kind,
            model.share,
            doubt=self._kv.doubt_all,
            noun="draft model",
            name=model.name,
            clock=clock,
        )
        self._num_decodes = self._lag_tokens = 0
        """Of the step that is planned; and tokens that sequences lack, of those found ready."""
        self._behind: list[tuple[Sequence, DraftKv]] = []

    @property
    def is_out(self) -> bool:
        """See Drafter."""
        return self._care.is_out

    def begin(self, cost: StepCost, num_decodes: int, least: float) -> None:
        """See Drafter."""
        self._care.begin(cost, num_decodes, least)
        self._num_decodes, self._lag_tokens = num_decodes, 0
        self._behind.clear()

    @property
    def is_behind(self) -> bool:
        """See Drafter."""
        return bool(self._behind)

    def rest(self) -> None:
        """See Drafter."""
        self._care.rest()
        self._behind.clear()

    def prospect(self, request: Request, sequence: Sequence, most: int) -> DraftProspect:
        """See Drafter. Of answers in a grammar it knows no masks."""
        if request.grammar is not None:
            return NOTHING
        num_known = len(sequence.token_ids)
        most = min(most, self._model.max_context_tokens - num_known)
        if most <= 0 or self._care.is_out:
            return NOTHING
        kv = self._kv_of(sequence)
        chances = kv.rates.chances(most, self._care.least)
        lag = num_known - kv.num_read
        if not chances:
            return NOTHING
        if lag <= MOST_LAG and self._lag_tokens + lag <= self._max_batch_tokens:
            self._lag_tokens += lag
            return self._care.promise(chances)
        if self._is_worth_reading(lag, chances, most, num_known):
            self._behind.append((sequence, kv))
        return NOTHING

    def draft(self, wanted: Ordered[Wanted]) -> list[Draft]:
        """See Drafter."""
        return self._care.draft(wanted, self._is_ready, self._guess)

    def settle(self) -> None:
        """See Drafter: reads of sequences that are behind."""
        if self._behind:
            self._care.read(self._read_on)
            self._behind.clear()

    def take_time(self) -> DraftTime:
        """See Drafter."""
        return self._care.take_time()

    def _kv_of(self, sequence: Sequence) -> DraftKv:
        """As the tokens that are known now make it."""
        kv, lease = sequence.draft_kv, sequence.blocks
        if kv is not None and kv.is_of(lease, self._block_size, era=self._kv.era):
            kv.rates.fade()
            kv.settle(sequence.token_ids, self._block_size)
            return kv
        rates = OwnKeptRates(self._care.rates) if kv is None else kv.rates
        names = sequence.names(self._block_size)
        num_read = self._kv.prefix_tokens(lease.block_ids, names)
        kv = DraftKv(lease, 0, rates, era=self._kv.era)
        if num_read := min(num_read, len(sequence.token_ids) - 1):
            kv.read(num_read, self._block_size)
        sequence.draft_kv = kv
        return kv

    def _is_ready(self, sequence: Sequence) -> bool:
        """What was known of it before the plan holds still: making room may have copied a block."""
        kv = sequence.draft_kv
        return kv is not None and kv.is_of(sequence.lease, self._block_size, era=self._kv.era)

    def _is_worth_reading(
        self, num_tokens: int, chances: Ordered[float], most: int, context: int
    ) -> bool:
        """Whether drafts of what is left would save more than reading what is there takes."""
        cost = self._care.cost
        gain = speedup(
            chances,
            cost,
            num_decodes=self._num_decodes,
            context=context,
            guess_ms=self._care.guess_ms,
        )
        if gain <= LEAST_GAIN:
            return False
        left_ms = min(most, LIKELY_LEFT) * cost.decodes_ms(self._num_decodes)
        return (1 - 1 / gain) * left_ms > num_tokens * self._care.price.read_ms(cost)

    def _guess(self, makings: list[Making]) -> tuple[int, int]:
        """See GuessCare. The longest go first, so that those that go on are the first ones."""
        makings = sorted(makings, key=lambda making: making.num_tokens, reverse=True)
        rows = [self._begin(making) for making in makings]
        logits = self._model.runner.forward(reading(rows, self._block_size, wants_logits=True))
        for row, making in zip(rows, makings, strict=True):
            self._note_read(making.sequence, row)
        num_rows, rounds = sum(len(row.token_ids) for row in rows), Rounds(rows, self._block_size)
        if self._drawing is not None and all(making.row(0).is_simple for making in makings):
            num_rounds, more = guess_by_launches(self._drawing, logits, makings, rounds)
        else:
            num_rounds, more = self._guess_by_turns(logits, makings, rounds)
        for making in makings:
            assert making.sequence.draft_kv is not None, "prospect was asked for"
            making.sequence.draft_kv.guessed(making.guesses)
        return num_rounds, num_rows + more

    def _guess_by_turns(
        self, logits: torch.Tensor, makings: list[Making], rounds: Rounds
    ) -> tuple[int, int]:
        """See guess_by_launches: each round waits for the tokens of the one before."""
        num_rounds, num_rows = 1, 0
        self._sampler.guess(logits, makings)
        while going := [i for i, making in enumerate(makings) if not making.is_over]:
            tokens = self._clamped([makings[i].guesses[-1] for i in going])
            logits = self._model.runner.forward(rounds.batch(tokens, going, num_rounds))
            self._sampler.guess(logits, [makings[i] for i in going])
            num_rounds, num_rows = num_rounds + 1, num_rows + len(going)
        return num_rounds, num_rows

    def _begin(self, making: Making) -> ReadRow:
        """What is read before the first guess; blocks reach as far as guesses are written."""
        sequence, kv = making.sequence, making.sequence.draft_kv
        assert kv is not None, "prospect was asked for"
        end = len(sequence.token_ids) + making.num_tokens - 1
        block_ids = sequence.blocks.block_ids[: -(-end // self._block_size)]
        self._kv.begin(block_ids, kv.num_read, end)
        return ReadRow(self._clamped(sequence.token_ids[kv.num_read :]), kv.num_read, block_ids)

    def _read_on(self) -> int:
        """Returns how many tokens were read."""
        rows, sequences, written = list[ReadRow](), list[Sequence](), set[int]()
        left = self._read_limit()
        for sequence, kv in self._behind:
            if left == 0 or not self._is_ready(sequence):
                continue  # the latter was preempted for others, or its block was copied
            self._skip_what_others_read(sequence, kv)
            row = self._next_row(sequence, kv, left)
            if row is None or not written.isdisjoint(row.block_ids):
                continue  # a sequence with the same beginning reads these now
            self._kv.begin(row.block_ids, row.first, row.end)
            written.update(row.block_ids[row.first // self._block_size :])
            rows.append(row)
            sequences.append(sequence)
            left -= len(row.token_ids)
        if not rows:
            return 0
        self._model.runner.forward(reading(rows, self._block_size, wants_logits=False))
        self._model.wait()  # what it takes is measured
        for sequence, row in zip(sequences, rows, strict=True):
            self._note_read(sequence, row)
        return sum(len(row.token_ids) for row in rows)

    def _next_row(self, sequence: Sequence, kv: DraftKv, most: int) -> ReadRow | None:
        """None: what the target has computed of it is read."""
        end = min(kv.num_read + most, sequence.num_computed)
        if end <= kv.num_read:
            return None
        tokens = self._clamped(sequence.token_ids[kv.num_read : end])
        return ReadRow(tokens, kv.num_read, kv.lease.block_ids[: -(-end // self._block_size)])

    def _skip_what_others_read(self, sequence: Sequence, kv: DraftKv) -> None:
        names = sequence.names(self._block_size)
        known = self._kv.prefix_tokens(kv.lease.block_ids, names)
        if kv.num_read < known < len(sequence.token_ids):
            kv.read(known, self._block_size)

    def _read_limit(self) -> int:
        cost = self._care.cost
        read_ms = self._care.price.read_ms(cost)
        in_time = READ_FACTOR * cost.decodes_ms(self._num_decodes) / read_ms if read_ms else 0
        return min(max(FEWEST_READ, int(in_time)), self._max_batch_tokens)

    def _note_read(self, sequence: Sequence, row: ReadRow) -> None:
        kv = sequence.draft_kv
        assert kv is not None, "nothing is read without a record"
        names = sequence.names(self._block_size)
        self._kv.done(row.block_ids, names, row.first, row.end)
        kv.read(row.end, self._block_size)

    def _clamped(self, token_ids: list[int]) -> list[int]:
        """Tokens beyond the draft's vocabulary, which is smaller then, are read as its last."""
        last = self._model.vocab_size - 1
        return [min(token, last) for token in token_ids]
