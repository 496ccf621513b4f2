"""A group as its conductor holds it: rank 0 of one generation, with the others to compute with.

    formed (forming.py) -> loads its part with the others -> ready -> steps, words ... -> closed
                                '---------------'--------------'--> RankLost: the engine ends

Called from the engine's one thread; the watch has its own (watch.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from cluster.deadline import Clock
from cluster.errors import ConfigError, RankLost, SplitserveError
from cluster.rank_facts import RankFacts, RankWait
from engine.model.load_phases import PhaseProgress
from engine.runner.ranks.roster import Roster
from engine.runner.ranks.watch import RankWatch, wait_of
from ranks.collectives.call_wait import CallWait
from ranks.collectives.group_collective import GroupCollective, gathered
from ranks.launch import CONDUCTOR, RankLaunch
from ranks.plans.plan import Part, PlanKind, PlanWriter

MEET_S = 60.0
"""For ranks that all say that they have loaded."""
SETTLE_S = 180.0
"""For a step that ranks try while they load: some compile its kernels, all of them, and others have
them in their caches. One that has ended or stands still is seen by the watch."""
REPORTS_INTERVAL_S = 0.02
"""What a rank has failed with can wait so long. An empty inbox takes 0.05 ms of a step to look at,
and 0.1 of one of sixteen sequences, after which nothing of it is in the caches."""
_FAREWELL_S = 3.0
"""For ranks that are told to end; then they are killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTies:
    """What ties one generation together."""

    launch: RankLaunch
    """The conductor's own."""
    collective: GroupCollective
    call_limit_s: float
    """Of each of its calls."""
    plans: PlanWriter
    roster: Roster
    watch: RankWatch


class RankGroup:
    """OtherRanks, and LoadedTogether."""

    def __init__(
        self,
        ties: GroupTies,
        closers: contextlib.ExitStack,
        progress: PhaseProgress,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        """`closers` end it all: the ranks, what they meet in, what they report to. `progress` is
        told what they are at while they start."""
        self._ties, self._closers, self._progress = ties, closers, progress
        self._own_facts: list[RankFacts] = []
        self._num_plans = 0
        self._clock = clock
        self._stepped_s = self._published_s = 0.0
        self._read_s = -REPORTS_INTERVAL_S
        self._is_over = False

    @property
    def launch(self) -> RankLaunch:
        """The conductor's own, as the other ranks have theirs."""
        return self._ties.launch

    @property
    def collective(self) -> GroupCollective:
        """The conductor's."""
        return self._ties.collective

    @property
    def greetings(self) -> Mapping[int, bytes]:
        """See RankLine."""
        return {rank: ready.extension for rank, ready in self._ties.roster.ready.items()}

    @property
    def facts(self) -> list[RankFacts]:
        """See OtherRanks."""
        ready = self._ties.roster.ready
        return [*self._own_facts, *(ready[rank].facts for rank in sorted(ready))]

    @property
    def waits(self) -> list[RankWait]:
        """Of every rank, the conductor's first; as of a moment ago."""
        return [self._own_wait, *self._ties.watch.waits]

    def waits_now(self) -> list[RankWait]:
        """As `waits`, as of now, for who measures single steps: of ranks that share memory."""
        others = range(1, self.launch.world_size)
        signs = [(rank, self._ties.plans.sign_of(rank)) for rank in others]
        return [self._own_wait, *(wait_of(rank, sign) for rank, sign in signs)]

    @property
    def _own_wait(self) -> RankWait:
        return RankWait(
            rank=CONDUCTOR,
            num_plans=self._num_plans,
            waited_s=self._ties.collective.waited_s,
            called_s=self._ties.collective.called_s,
            stepped_s=self._stepped_s,
        )

    def on_wait(self, tell: Callable[[], None]) -> None:
        """See OtherRanks."""
        ties = self._ties
        ties.watch.on_wait(CallWait(ties.collective, limit_s=ties.call_limit_s), tell)

    def meet(self) -> None:
        """See LoadedTogether."""
        self._ties.roster.await_loaded(self._progress)
        try:
            self._ties.collective.meet(MEET_S)
        except RankLost as consequence:
            raise self.loss_after(consequence) from consequence

    def least(self, number: int, device: torch.device) -> int:
        """See LoadedTogether."""
        mine = torch.tensor([[number]], device=device)
        try:
            return int(gathered(self._ties.collective, mine).min())
        except RankLost as consequence:
            raise self.loss_after(consequence) from consequence

    def settle(self) -> None:
        """See LoadedTogether."""
        try:
            self._ties.collective.wait_until_landed(SETTLE_S)
            self.check()
        except RankLost as consequence:
            raise self.loss_after(consequence) from consequence

    def await_ready(self, own: RankFacts) -> None:
        """Until all take plans; a silent one stands still from now on. Raises ConfigError for ranks
        that have loaded other forms than this one."""
        self._own_facts = [own]
        self._ties.roster.await_ready(self._progress)
        require_one_form(self.facts)
        self._ties.watch.expect_beats()

    def check(self) -> None:
        """See GroupTurn. What ranks have said is read some times a second."""
        if (now_s := self._clock()) - self._read_s >= REPORTS_INTERVAL_S:
            self._read_s = now_s
            self._ties.roster.take()
        self._ties.roster.check()

    def before_leaving(self, then: Callable[[], None]) -> None:
        """`then` is done first of all when the group is closed."""
        self._closers.callback(then)

    def publish(self, step: Sequence[Part]) -> None:
        """A step's plan, to all ranks. Raises RankLost."""
        self._num_plans += 1
        self._ties.plans.send(PlanKind.STEP, *step)
        self._published_s = self._clock()

    def land(self) -> None:
        """What the step has computed is there, and all ranks are: before anything of it is used.
        Raises RankLost for what the watch has seen; what ranks have said is read in `check`."""
        self._ties.collective.wait_until_landed()
        self._stepped_s += self._clock() - self._published_s
        self._ties.roster.check()

    def tell_of_experts(self, body: bytes) -> None:
        """Of engine/model/experts/words.py, to all ranks. Raises RankLost."""
        self._ties.plans.send(PlanKind.EXPERTS, body)

    def tell_of_adapters(self, body: bytes) -> None:
        """Of engine/model/adapters/words.py, to all ranks. Raises RankLost."""
        self._num_plans += 1
        self._ties.plans.send(PlanKind.ADAPTERS, body)

    def tell(self, body: bytes) -> None:
        """See RankLine."""
        try:
            self._num_plans += 1
            self._ties.plans.send(PlanKind.WORD, body)
        except RankLost as consequence:
            raise self.loss_after(consequence) from consequence

    def gather(self, rows: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        """See RankLine."""
        try:
            return gathered(self._ties.collective, rows, widths)
        except RankLost as consequence:
            raise self.loss_after(consequence) from consequence

    def hear(self) -> list[tuple[int, bytes]]:
        """See RankLine."""
        return self._ties.roster.take_words()

    def loss_after(self, error: Exception) -> SplitserveError:
        """What to raise after a step, or a call of this group's, has failed with `error`: whatever
        it was, the ranks are not at one any more."""
        self._is_over = True
        if isinstance(error, RankLost):
            return self._ties.roster.cause_of(error)
        return RankLost(
            f"rank {CONDUCTOR} of generation {self.launch.generation} failed in a step "
            f"({type(error).__name__}: {error}); the group is started anew",
            ranks=(CONDUCTOR,),
        )

    def close(self) -> None:
        """See OtherRanks. Ranks that take plans are told, and have a moment to close what they
        hold; those that still start are ended at once."""
        if self._ties.roster.is_serving and not self._is_over:
            self._is_over = True
            with contextlib.suppress(RankLost):
                self._ties.watch.check()
                self._ties.watch.expect_ends()
                self._ties.plans.send(PlanKind.STOP)
                self._ties.watch.await_ends(_FAREWELL_S)
        self._closers.close()


def require_one_form(facts: Sequence[RankFacts]) -> None:
    """Of ranks that have loaded. Raises ConfigError where devices have led to unequal choices."""
    if len({each.loaded_as for each in facts}) > 1:
        rows = "".join(
            f"\n  rank {each.rank} on {each.node} ({each.device}): {each.loaded_as}"
            for each in facts
        )
        raise ConfigError(
            f"the ranks hold the model in unequal forms:{rows}\nplace them on devices of one kind; "
            "where only the form of matrices differs, --weights int8 is one that all have",
            param="weights",
        )
