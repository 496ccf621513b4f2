"""Which tokens may come next: all rows of a step in one call, in a thread beside the engine's.

    begin -> quick rows in one job | watched rows, each a job of its own
          -> the engine waits for jobs as long as a step may (engine/step/masking.py)

A job that takes long ends there: rows that are not made yet are handed back, to be begun again,
and those that took long are watched from then on, with all of the same grammar that were behind
them. A watched row is made by itself, in one of two other threads, and timed by the processor time
of its thread, which a busy machine does not lengthen; one that is cheap goes back. So a dear
grammar holds up others of a job once, by one row of it, and never those without one. A mask, or an
answer, that takes too much of a core ends. What an answer's grammar is told once more, as that went
on elsewhere or begins again, is told there as well, in parts, and is no part of a mask.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import llguidance.numpy
import torch
from llguidance import LLExecutor

from cluster.deadline import Clock
from cluster.models.text.grammars import MASK_BUDGET_S
from engine.sampling.grammars.constraint import Constraint
from engine.sampling.grammars.masked_row import MaskedRow, only_token
from engine.sampling.grammars.meter import GrammarMeter
from engine.sampling.grammars.step_back import step_back
from kernels.token_mask import WORD_BITS, TokenMask, num_words

ANSWER_BUDGET_S, TOKEN_BUDGET_S = 1.0, 0.002
"""Of a core, for all masks of an answer that were timed: so much, and so much for each token."""
LONG_S = 0.01
"""A job that took longer does not go on."""
DEAR_S = 0.002
"""A mask that took so much of a core is dear: its grammar's answers are watched. Of a job that took
long, rows that took so long."""
REPLAY_PART_S = 0.05
"""Of a core: others that are watched have their turn then."""
_REPLAYED_TOGETHER = 8
"""Tokens between two looks at the clock."""
NUM_WATCHERS = 2
"""Threads: a dear mask does not keep all others waiting that are watched."""
MAX_THREADS = 8
_ALL = -1


class MaskMaker:
    """One engine's; `begin` from its thread."""

    def __init__(
        self,
        vocab_size: int,
        meter: GrammarMeter,
        *,
        ends: Container[int] = (),
        clock: Clock = time.perf_counter,
        row_clock: Clock = time.thread_time,
        num_threads: int = 1,
    ) -> None:
        """`ends`: tokens that end an answer. `num_threads`: that have nothing else to do while a
        step computes. Raises RuntimeError where the system has no threads for it."""
        self._num_words = num_words(vocab_size)
        self._mask_bytes = self._num_words * (WORD_BITS // 8)
        self._meter = meter
        self._ends = ends
        self._clock, self._row_clock = clock, row_clock
        self._quick = ThreadPoolExecutor(1, thread_name_prefix="masks")
        self._watchers = ThreadPoolExecutor(
            NUM_WATCHERS, thread_name_prefix="watched-masks", initializer=step_back
        )
        _begin_threads(self._quick, 1)
        _begin_threads(self._watchers, NUM_WATCHERS)
        self._num_threads = min(MAX_THREADS, num_threads)
        self._executor = LLExecutor(self._num_threads)
        self._at_once = 1 if self._num_threads == 1 else 2 * self._num_threads

    def begin(self, rows: Sequence[MaskedRow]) -> None:
        """Rows of different constraints, none of which has another that is not done. Some may be
        handed back (`MaskedRow.is_handed_back`)."""
        quick = list[MaskedRow]()
        for row in rows:
            if (row.constraint.is_watched or row.constraint.is_spent) and not row.draft:
                row.job = self._watchers.submit(self._watch, row)
            else:
                quick.append(row)
        if quick:
            job = self._quick.submit(self._make, quick)
            for row in quick:
                row.job = job

    def close(self) -> None:
        """What is made at this moment is not waited for."""
        for pool in (self._quick, self._watchers):
            pool.shutdown(wait=False, cancel_futures=True)

    def _make(self, rows: list[MaskedRow]) -> float:
        """In the thread of masks; looks at the clock between rows, or between as many of them as
        one call makes."""
        began_s = last_s = self._clock()
        slow = list[MaskedRow]()
        for start in range(0, len(rows), self._at_once):
            part = rows[start : start + self._at_once]
            if len(part) == 1:
                self._make_one(part[0])
            else:
                self._make_together(part)
            now_s = self._clock()
            if now_s - last_s > DEAR_S:
                slow += part
            last_s = now_s
            if now_s - began_s > LONG_S:
                _watch_all_like(slow, rows[start + len(part) :])
                break
        self._meter.note_masks(sum(len(row.masks) for row in rows), last_s - began_s)
        return last_s - began_s

    def _make_one(self, row: MaskedRow) -> None:
        constraint = row.constraint
        if row.draft:
            if constraint.failure is None:
                self._fill_drafted([row])
        else:
            constraint.catch_up(row.new)
            if constraint.failure is None:
                self._fill_one(row)
                if row.most_forced:
                    self._force(row)
        constraint.check()
        row.conclude()

    def _fill_one(self, row: MaskedRow) -> None:
        mask = row.constraint.next_mask(self._num_words)
        row.constraint.matcher.unsafe_compute_mask_ptr(mask.address, self._mask_bytes)
        row.masks = (mask,)

    def _make_together(self, rows: list[MaskedRow]) -> None:
        """In one call each for drafts and others, where cores are free. Beside a team of kernels on
        all of them, more threads than this one make 16 streams 3 % slower: the team waits at its
        barriers for each."""
        for row in rows:
            if not row.draft:
                row.constraint.catch_up(row.new)
        sound = [row for row in rows if row.constraint.failure is None]
        if drafted := [row for row in sound if row.draft]:
            self._fill_drafted(drafted)
        if others := [row for row in sound if not row.draft]:
            self._fill_each(others)
            for row in others:
                if row.most_forced:
                    self._force(row)
        for row in rows:
            row.constraint.check()
            row.conclude()

    def _fill_each(self, rows: list[MaskedRow]) -> None:
        bits = torch.empty((len(rows), self._num_words), dtype=torch.int32)
        matchers = [(row.constraint.matcher, i) for i, row in enumerate(rows)]
        llguidance.numpy.fill_next_token_bitmask_par(self._executor, matchers, bits.numpy())
        for row, mask in zip(rows, TokenMask.rows_of(bits), strict=True):
            row.masks = (mask,)

    def _fill_drafted(self, rows: list[MaskedRow]) -> None:
        """All rows of a verification in one call; the grammars are where they were afterwards."""
        for row in rows:
            row.constraint.note_walk()
        ends = list(accumulate(1 + len(row.draft) for row in rows))
        bits = torch.full((ends[-1], self._num_words), _ALL, dtype=torch.int32)
        asked = [
            (row.constraint.matcher, end - 1 - len(row.draft), list(row.draft))
            for row, end in zip(rows, ends, strict=True)
        ]
        fill = llguidance.numpy.fill_next_token_bitmask_par_with_draft_tokens
        fill(self._executor, asked, bits.numpy())
        masks = TokenMask.rows_of(bits)
        for row, end in zip(rows, ends, strict=True):
            row.masks = masks[end - 1 - len(row.draft) : end]

    def _force(self, row: MaskedRow) -> None:
        """While a mask has one bit its token is sure to come, and is fed."""
        constraint, [mask], forced = row.constraint, row.masks, list[int]()
        row.forced, row.masks = forced, (masks := [mask])
        while len(forced) < row.most_forced:
            token = only_token(mask.words.numpy())
            row.is_forced = bool(forced) or token is not None
            if token is None:
                return
            forced.append(token)
            if token in self._ends:
                return
            constraint.feed_ahead(token)
            mask = TokenMask.blank(self._num_words)
            constraint.matcher.unsafe_compute_mask_ptr(mask.address, self._mask_bytes)
            masks.append(mask)

    def _watch(self, row: MaskedRow) -> float:
        """In a watcher's thread: one mask, timed. A row whose constraint has still to be told of
        other tokens than the last is handed back."""
        constraint = row.constraint
        if (constraint.is_spent or len(row.new) > 1) and not self._replay(row):
            return 0.0
        began_s = self._row_clock()
        constraint.catch_up(row.new)
        if constraint.failure is None:
            self._fill_one(row)
            constraint.check()
        took_s = self._row_clock() - began_s
        if not constraint.is_spent:
            constraint.spent_s += took_s
            self._judge(constraint, took_s)
        row.conclude()
        self._meter.note_masks(1, took_s)
        return took_s

    def _replay(self, row: MaskedRow) -> bool:
        """All of its tokens but the last, for as long as a part may take; whether that was all."""
        constraint, began_s = row.constraint, self._row_clock()
        row.masks = row.forced = ()
        if constraint.is_spent:
            row.new[:0] = constraint.begin_again(len(row.new))
        while len(row.new) > 1 and constraint.failure is None and not constraint.is_spent:
            if self._row_clock() - began_s > REPLAY_PART_S:
                break
            part = row.new[: min(_REPLAYED_TOGETHER, len(row.new) - 1)]
            del row.new[: len(part)]
            constraint.catch_up(part)
        constraint.replayed_s += self._row_clock() - began_s
        self._judge_replay(constraint)
        return len(row.new) <= 1 and constraint.failure is None and not constraint.is_spent

    def _judge(self, constraint: Constraint, took_s: float) -> None:
        constraint.is_watched = took_s > DEAR_S
        if constraint.is_watched and constraint.grammar is not None:
            constraint.grammar.is_dear = True
        if took_s > MASK_BUDGET_S:
            constraint.fail(
                f"the next token's mask took {took_s * 1e3:.0f} ms of a core; allowed: "
                f"{MASK_BUDGET_S * 1e3:.0f}; write a simpler grammar"
            )
        allowed_s = ANSWER_BUDGET_S + TOKEN_BUDGET_S * constraint.num_known
        if constraint.spent_s > allowed_s:
            constraint.fail(
                f"the masks of {constraint.num_known} tokens took {constraint.spent_s:.1f} s of a "
                f"core; allowed: {allowed_s:.1f}; write a simpler grammar"
            )

    def _judge_replay(self, constraint: Constraint) -> None:
        """By its tokens: masks were made for them before, and dear ones were counted."""
        allowed_s = ANSWER_BUDGET_S + (TOKEN_BUDGET_S + DEAR_S) * constraint.num_known
        if constraint.replayed_s > allowed_s:
            constraint.fail(
                f"to follow {constraint.num_known} tokens once more took "
                f"{constraint.replayed_s:.1f} s of a core; allowed: {allowed_s:.1f}; "
                "write a simpler grammar"
            )


def _begin_threads(pool: ThreadPoolExecutor, num_threads: int) -> None:
    """All that it may have: later there may be none, and `submit` would raise in the middle of a
    step."""
    all_begun = threading.Event()
    try:
        for _ in range(num_threads):
            pool.submit(all_begun.wait)
    finally:
        all_begun.set()


def _watch_all_like(slow: list[MaskedRow], behind: list[MaskedRow]) -> None:
    """Rows that took long, and those behind them that are likely to."""
    grammars = {row.constraint.grammar for row in slow} - {None}
    for row in behind:
        if row.constraint.grammar in grammars:
            row.constraint.is_watched = True
    for row in slow:
        row.constraint.is_watched = True
