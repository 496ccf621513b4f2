"""Rows of a step whose requests have a grammar: what may come next is looked up beside the engine's
thread, and waited for as long as a step may.

    after a step    look ahead: of each sequence that goes on, as soon as its last token is known;
                    with what is forced behind it, where that takes nobody's time or is worth it
    before a plan   settle: what is there, waited for where tokens are often forced; who has missed
                    a step, or is watched, sits out until its mask is there
    after the plan  begin: prompts that end, and rows of drafts
    forward, take   late: those whose mask is not there; the others go on without them
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ordered
from collections.abc import Set as AbstractSet
from concurrent.futures import FIRST_COMPLETED, Future, wait

import structlog

from cluster.deadline import Clock
from cluster.errors import GrammarFailed, InternalError
from engine.sampling.grammars.masked_row import MaskedRow, any_done, open_jobs
from engine.sampling.grammars.masks import MaskMaker
from engine.step.batch.step_work import Span
from engine.step.mask_rows import DECODING, is_known, is_masked, row_of
from engine.step.mask_waits import ForcedShare, MaskPatience, MaskVigil, MaskWaits
from engine.step.mask_walks import late_walks, walk_has_failed, walk_of
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence
from engine.step.requests.table import RequestTable
from kernels.token_mask import TokenMask

_LOG = structlog.get_logger()
_NOBODY: frozenset[Sequence] = frozenset()


class Masking:
    """One engine's. Not asked while no request has a grammar, but for `rest`."""

    def __init__(
        self,
        table: RequestTable,
        masks: MaskMaker | None,
        *,
        ends: frozenset[int] = frozenset(),
        clock: Clock,
        looks_for_forced: bool = False,
        has_spare_cores: bool = True,
    ) -> None:
        """`masks`: None where no grammar comes. `ends`: tokens that end an answer.
        `looks_for_forced`: for tokens that are forced, as sequences are drafted for."""
        self._table = table
        self._masks = masks
        self._ends = ends
        self._vigil, self._patience = MaskVigil(clock), MaskPatience(clock)
        self.waits = MaskWaits()
        self._looks_for_forced = looks_for_forced
        self.has_spare_cores = has_spare_cores
        """Masks are made on cores that kernels leave: more of them take nobody's time."""
        self._forced = ForcedShare()
        self._under_way: dict[Sequence, MaskedRow] = {}
        self._missed: set[Sequence] = set()
        self._looked_at: set[Sequence] = set()
        """Since the last tokens: their masks are there, or will be once nothing of them is under
        way."""
        self._begun: list[tuple[Request, Span]] = []
        """Of those that `begin` was told of, who was not looked at before, or has a draft."""
        self._drafted: dict[Sequence, MaskedRow] = {}

    @property
    def is_busy(self) -> bool:
        """Somebody sits out, whose mask may be there soon."""
        return bool(self._missed)

    def close(self) -> None:
        """Once, at the end: of masks that are made at this moment none is waited for."""
        if self._masks is not None:
            self._masks.close()

    def rest(self) -> bool:
        """Of answers that are over it keeps what a thread still has: whether there is any. Raises
        EngineBroken for a mask that never ends."""
        self._keep({s: row for s, row in self._under_way.items() if not row.is_done})
        self._looked_at, self._drafted, self._begun = set(), {}, []
        self._vigil.check(self._under_way.values())
        return bool(self._under_way)

    def look_ahead(self) -> None:
        """Once tokens are known: what may come after them."""
        going = [
            (request, sequence)
            for request, sequence in self._table.running()
            if sequence.life.state is DECODING and request.grammar is not None
        ]
        self._look(going)
        self._looked_at = {sequence for _, sequence in going}
        if self._missed:  # of these a late walk may be under way, which leaves no mask
            self._looked_at -= self._missed

    def settle(self, step_s: float = 0.0) -> None:
        """Before a plan: takes what is there. `step_s`: of its step; 0: nobody knows."""
        self._patience.left_s = self.waits.most_s(step_s)
        fresh = self._under_way.keys() - self._missed
        if self._awaits_forced(len(fresh)):
            self._patience.wait(self._jobs_of(fresh, watched=False), self.waits.plan_s)
        self._collect()

    def sits_out(self, sequence: Sequence) -> bool:
        """Whether it has missed a step, or is watched, and its mask is still not there."""
        return sequence in self._missed

    def begin(self, spans: Ordered[Span]) -> None:
        """Before the forward pass of these spans, whose tokens change no more until `take`."""
        self._begun = fresh = [
            (request, span)
            for span in spans
            if (span.draft or span.sequence not in self._looked_at)
            and (request := self._request_of(span)) is not None
        ]
        self._drafted = {}
        self._look((request, span.sequence) for request, span in fresh)
        for _, span in fresh:
            if span.draft and (walk := walk_of(span, self._ends)) is not None:
                self._drafted[span.sequence] = walk
        self._begin(list(self._drafted.values()))

    def take(self, spans: Ordered[Span]) -> AbstractSet[Sequence]:
        """Once the logits of the spans are there that have begun. Returns whose masks are not:
        these wait for another step."""
        self._collect()
        is_settled, begun = not self._under_way and not self._drafted, self._begun
        if is_settled and (not begun or all(is_known(span.sequence) for _, span in begun)):
            return _NOBODY  # as nearly always: all masks that were begun are there
        masked = [span.sequence for span in spans if self._request_of(span) is not None]
        waiting = self._not_ready(masked)
        if waiting:
            self._patience.wait(self._jobs_of(waiting, watched=False))
            self._collect()
            is_lone = sum(span.completes for span in spans) == len(waiting)
            if is_lone and len(self._not_ready(waiting)) == len(waiting):
                self._wait_for_one(waiting)
            waiting = self._not_ready(waiting)
            self._under_way |= late_walks(self._drafted, waiting)
            self._missed |= self._under_way.keys() & waiting
        if not waiting and not self._drafted:
            return _NOBODY
        return {*waiting, *(s for s, row in self._drafted.items() if walk_has_failed(s, row))}

    def allowed(self, sequence: Sequence, place: int = 0) -> TokenMask | None:
        """Which tokens may come behind so many of a draft; of a sequence with a grammar that was
        not late. None: the draft has ended the answer before. Raises why its grammar cannot be
        followed any further, or InternalError where it was late: a bug, and no concern of others.
        """
        constraint = sequence.constraint
        if constraint is not None:
            if constraint.failure is not None:
                raise GrammarFailed(constraint.failure)
            if (outlook := constraint.outlook) is not None:
                masks, start = outlook.masks, sequence.num_generated - outlook.num_known
                if 0 <= start < len(masks):
                    behind = 1 + start + place - len(masks)
                    if behind <= 0:
                        return masks[start + place]
                    row = self._drafted.get(sequence)
                    return None if row is None or behind >= len(row.masks) else row.masks[behind]
        _LOG.error("a token has no mask; its request ends", request_id=sequence.request_id)
        raise InternalError("the engine has no mask of the answer's next token; please report")

    def check_invariants(self) -> list[str]:
        """Broken promises, in words; empty is good."""
        found = [
            f"{s.request_id}/{s.choice} waits for a mask that nobody makes"
            for s in self._missed | self._under_way.keys()
            if (row := self._under_way.get(s)) is None or row.job is None
        ]
        for request in self._table if self._table.num_constrained else ():
            for s in request.sequences:
                constraint = s.constraint
                if constraint is not None and constraint.num_known > s.num_generated:
                    found.append(f"the grammar of {s.request_id}/{s.choice} is ahead of its answer")
        return found

    def _request_of(self, span: Span) -> Request | None:
        """Whose tokens are chosen from the span's logits by a grammar; None: they are not."""
        if not span.completes:
            return None
        request = self._table.get(span.sequence.request_id)
        return request if request is not None and is_masked(request) else None

    def _look(self, sequences: Iterable[tuple[Request, Sequence]]) -> None:
        fresh = [
            (request, sequence)
            for request, sequence in sequences
            if sequence not in self._under_way and not is_known(sequence)
        ]
        if not fresh:
            return
        is_free = self._looks_for_forced and self.has_spare_cores
        forces = is_free or self._awaits_forced(len(fresh))
        rows = [row_of(request, sequence, is_drafted=forces) for request, sequence in fresh]
        for (_, sequence), row in zip(fresh, rows, strict=True):
            self._under_way[sequence] = row
            if row.constraint.is_watched:
                self._missed.add(sequence)  # no step waits for it
        first = fresh[0][1].life.state
        if self._looks_for_forced and not forces and first is DECODING:
            rows[0].is_sample = self._forced.is_sampled()
        self._begin(rows)

    def _awaits_forced(self, num_rows: int) -> bool:
        """Whether a plan waits for so many masks, as tokens may be forced."""
        return self._looks_for_forced and self._forced.value >= self.waits.least_forced * num_rows

    def _begin(self, rows: list[MaskedRow]) -> None:
        if not rows or self._masks is None:
            return
        try:
            self._masks.begin(rows)
        except BaseException:  # nobody makes theirs: they are looked at again, or over
            self._keep({s: row for s, row in self._under_way.items() if row.job is not None})
            raise

    def _keep(self, under_way: dict[Sequence, MaskedRow]) -> None:
        self._under_way = under_way
        self._missed &= under_way.keys()

    def _not_ready(self, sequences: list[Sequence]) -> list[Sequence]:
        drafted = self._drafted
        return [
            sequence
            for sequence in sequences
            if not is_known(sequence) or (sequence in drafted and not drafted[sequence].is_done)
        ]

    def _wait_for_one(self, sequences: list[Sequence]) -> None:
        wait(self._jobs_of(sequences, watched=True), self.waits.lone_s, FIRST_COMPLETED)
        self._collect()

    def _jobs_of(self, sequences: Iterable[Sequence], *, watched: bool) -> list[Future[float]]:
        each = [rows.get(s) for s in sequences for rows in (self._under_way, self._drafted)]
        return open_jobs((row for row in each if row is not None), watched=watched)

    def _collect(self) -> None:
        """What is done of those under way. Raises EngineBroken for a mask that never ends."""
        if not self._under_way or self._take_all():
            return
        if not any_done(self._under_way.values()):
            self._vigil.check(self._under_way.values())
            return
        last, is_done, cause = None, False, None
        under_way, again = dict[Sequence, MaskedRow](), list[MaskedRow]()
        for sequence, row in self._under_way.items():
            if row.job is not last:
                last, is_done = row.job, row.is_done
                cause = row.job.exception() if is_done and row.job is not None else None
            if not is_done:
                under_way[sequence] = row
            elif cause is None and sequence.life.is_over:
                self._missed.discard(sequence)  # nobody asks for it any more
            elif cause is None and row.is_handed_back and not row.draft:
                under_way[sequence] = row
                again.append(row)
                if row.constraint.is_watched:
                    self._missed.add(sequence)
            else:
                self._missed.discard(sequence)
                if not row.draft:
                    self._note(row, cause)
                else:
                    walk_has_failed(sequence, row)
        self._under_way = under_way
        self._vigil.check(under_way.values())
        self._begin(again)

    def _take_all(self) -> bool:
        """What is under way, if, as nearly always, nobody is late, one job has made all masks, and
        nothing went wrong. Returns whether that is so."""
        rows = self._under_way.values()
        job = next(iter(rows)).job
        if self._missed or job is None or not job.done() or job.exception() is not None:
            return False
        if any(row.outlook is None or row.job is not job for row in rows):
            return False
        for row in rows:
            row.constraint.outlook = row.outlook
            if row.is_forced is not None:
                self._forced.note_of(row)
        self._under_way = {}
        return True

    def _note(self, row: MaskedRow, cause: BaseException | None) -> None:
        """What came of it."""
        if cause is not None:
            _LOG.error("masks could not be made; their requests end", exc_info=cause)
            row.constraint.fail("the answer's grammar cannot be followed further: its mask failed")
        elif row.outlook is not None:
            row.constraint.outlook = row.outlook
            self._forced.note_of(row)
