"""What the other ranks have said to their conductor so far, and what became of them.

arrived -> loaded -> ready          by their reports; a start waits for each of the three
   '----------'--------'--> failed: its last word; or ended or frozen: the watch has seen it
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cluster.deadline import Clock, Deadline
from cluster.errors import RankLost, SplitserveError, from_code, status_of
from cluster.process.own_lateness import SeenTime
from engine.model.load_phases import PhaseProgress
from engine.runner.ranks.watch import RankWatch
from ranks.reports import AnyReport, Progress, RankFailed, RankReady, ReportInbox, Word

ARRIVED, LOADED = "arrived", "wait for the other ranks"
"""Phases that ranks report."""
_POLL_S = 0.05
_CAUSE_S = 1.5
"""A consequence is seen at once, and its cause by then: the watch sees an end in twenty looks a
second. Less than an engine may be silent (engine_silence_s): who asks is its one thread."""
_FOLLOWS = status_of(RankLost("")).code


class Roster:
    """Of one group; of the conductor's main thread."""

    def __init__(
        self,
        inbox: ReportInbox,
        watch: RankWatch,
        *,
        world_size: int,
        limit_s: float,
        clock: Clock = time.monotonic,
    ) -> None:
        """`limit_s`: for each rank that starts, without a report of its own."""
        self._inbox, self._watch = inbox, watch
        self._others = range(1, world_size)
        self._limit_s, self._clock = limit_s, clock
        self._phases: dict[int, set[str]] = {rank: set() for rank in self._others}
        self._failed: RankFailed | None = None
        self._words: list[tuple[int, bytes]] = []
        self._patience = {rank: SeenTime(clock) for rank in self._others}
        self.is_serving = False
        """All ranks have been ready: they read plans."""
        self.ready: dict[int, RankReady] = {}

    def await_phase(self, phase: str, progress: PhaseProgress) -> None:
        """Until every rank has reported it; their progress is passed on.

        Raises RankLost for one that ended or reports nothing for too long, or what it failed with.
        """
        self._await_all(lambda rank: phase in self._phases[rank], progress)

    def await_ready(self, progress: PhaseProgress) -> None:
        """Until every rank takes plans: from then on a failure is a rank's loss. Raises as
        `await_phase`."""
        self._await_all(lambda rank: rank in self.ready, progress)
        self.is_serving = True

    def _await_all(self, has_come: Callable[[int], bool], progress: PhaseProgress) -> None:
        while missing := [rank for rank in self._others if not has_come(rank)]:
            reports = self.take(_POLL_S)
            self.check()
            for report in reports:
                if isinstance(report, Progress):
                    progress(f"rank {report.rank}: {report.phase}", report.fraction)
            self._require_progress(missing)

    def _require_progress(self, missing: Sequence[int]) -> None:
        silent = [rank for rank in missing if self._patience[rank].look() > self._limit_s]
        if silent:
            raise RankLost(
                f"ranks {silent} made no progress for {self._limit_s:g} s while the group "
                "started (--start-timeout-s)",
                ranks=tuple(silent),
            )

    def take(self, timeout_s: float = 0.0) -> list[AnyReport]:
        """All that has come, noted."""
        reports = self._inbox.take(timeout_s)
        for report in reports:
            self._note(report)
        return reports

    def take_words(self) -> list[tuple[int, bytes]]:
        """Of the ranks' extensions, since the last call."""
        self.take()
        words, self._words = self._words, []
        return words

    def check(self) -> None:
        """Raises RankLost for what the watch has seen, and what a rank has failed with."""
        try:
            self._watch.check()
        except RankLost as loss:
            raise self._explained(loss) from None
        if self._failed is not None:
            raise self.cause_of(RankLost(f"rank {self._failed.rank} has failed"))

    def cause_of(self, consequence: RankLost) -> SplitserveError:
        """What is to be said in place of it; waits a little for the watch to find it."""
        deadline = Deadline.after(_CAUSE_S, self._clock)
        loss = None
        while loss is None and self._failed is None and not deadline.has_passed:
            loss = self._watch.await_loss(_POLL_S)
            self.take()
        return self._explained(consequence if loss is None else loss)

    def _explained(self, loss: RankLost) -> SplitserveError:
        """With the last word of a rank that failed by itself."""
        self.take()
        failed = self._failed
        if failed is None:
            return loss
        message = f"rank {failed.rank} failed: {failed.message}"
        if not self.is_serving:
            return from_code(failed.code, message)
        return RankLost(
            f"{message} ({loss.ending})" if loss.ending else message,
            ranks=(failed.rank,),
            ending=loss.ending,
            last_lines=loss.last_lines,
        )

    def _note(self, report: AnyReport) -> None:
        self._patience[report.rank].renew()
        if isinstance(report, Progress):
            self._phases[report.rank].add(report.phase)
        elif isinstance(report, RankReady):
            self.ready[report.rank] = report
        elif isinstance(report, Word):
            self._words.append((report.rank, report.body))
        elif isinstance(report, RankFailed) and report.code != _FOLLOWS:
            self._failed = self._failed or report
