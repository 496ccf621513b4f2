"""What the other ranks have said to their conductor so far, and what became of them.

arrived -> loaded -> ready          by their reports; a start waits for each of the three
   '----------'--------'--> failed: its last word; or ended or frozen: the watch has seen it
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from cluster.deadline import Clock, Deadline
from cluster.errors import RankLost, SplitserveError, from_code, status_of
from cluster.process.own_lateness import SeenTime
from engine.model.load_phases import PhaseProgress
from engine.runner.ranks.watch import RankWatch
from ranks.reports import (
    Arrived,
    PartLoaded,
    Progress,
    RankFailed,
    RankReady,
    RankReport,
    ReportInbox,
    Said,
    Word,
)

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
        self._arrived: set[int] = set()
        self._loaded: set[int] = set()
        self._failed: tuple[int, RankFailed] | None = None
        """The first rank's that has failed by itself."""
        self._words: list[tuple[int, bytes]] = []
        self._patience = {rank: SeenTime(clock) for rank in self._others}
        self.is_serving = False
        """All ranks have been ready: they read plans."""
        self.ready: dict[int, RankReady] = {}

    def await_arrived(self, progress: PhaseProgress) -> None:
        """Until every rank has; their progress is passed on.

        Raises RankLost for one that ended or reports nothing for too long, or what it failed with.
        """
        self._await_all(self._arrived, progress)

    def await_loaded(self, progress: PhaseProgress) -> None:
        """Until every rank has. Raises as `await_arrived`."""
        self._await_all(self._loaded, progress)

    def await_ready(self, progress: PhaseProgress) -> None:
        """Until every rank takes plans: from then on a failure is a rank's loss. Raises as
        `await_arrived`."""
        self._await_all(self.ready, progress)
        self.is_serving = True

    def _await_all(self, come: Collection[int], progress: PhaseProgress) -> None:
        while missing := [rank for rank in self._others if rank not in come]:
            reports = self.take(_POLL_S)
            self.check()
            for report in reports:
                if isinstance(said := report.said, Progress):
                    progress(f"rank {report.rank}: {said.phase}", said.fraction)
            self._require_progress(missing)

    def _require_progress(self, missing: Sequence[int]) -> None:
        silent = [rank for rank in missing if self._patience[rank].look() > self._limit_s]
        if silent:
            raise RankLost(
                f"ranks {silent} made no progress for {self._limit_s:g} s while the group "
                "started (--start-timeout-s)",
                ranks=tuple(silent),
            )

    def take(self, timeout_s: float = 0.0) -> list[RankReport]:
        """All that has come, noted."""
        reports = self._inbox.take(timeout_s)
        for report in reports:
            self._patience[report.rank].renew()
            self._note(report.rank, report.said)
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
            raise self.cause_of(RankLost(f"rank {self._failed[0]} has failed"))

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
        if self._failed is None:
            return loss
        rank, failed = self._failed
        message = f"rank {rank} failed: {failed.message}"
        if not self.is_serving:
            return from_code(failed.code, message)
        return RankLost(
            f"{message} ({loss.ending})" if loss.ending else message,
            ranks=(rank,),
            ending=loss.ending,
            last_lines=loss.last_lines,
        )

    def _note(self, rank: int, said: Said) -> None:
        match said:
            case Arrived():
                self._arrived.add(rank)
            case PartLoaded():
                self._loaded.add(rank)
            case RankReady():
                self.ready[rank] = said
            case Word(body=body):
                self._words.append((rank, body))
            case RankFailed() if said.code != _FOLLOWS:
                self._failed = self._failed or (rank, said)
