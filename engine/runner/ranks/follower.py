"""A rank that is not the conductor: it computes what it is told, with the others.

    find the model -> arrive -> hold until all have -> join -> load its part -> agree on the pool
                   -> capture decode steps, on GPUs -> RankReady
    then, for ever:   STEP     the same forward as the conductor's
                      EXPERTS  what is to be where
                      ADAPTERS the same of adapters
                      WORD     for its extension
                      STOP     the end

A failure of its own gives it up, so that nobody waits for it, and is told; then the process ends.
"""

from __future__ import annotations

import contextlib
import functools

from cluster.errors import InternalError, SplitserveError, status_of
from cluster.models.head_share import head_shares
from cluster.sharding import Rank
from engine.contract.head_in_blocks import whole_layers
from engine.contract.spec import EngineSpec
from engine.model.experts.rank_experts import RankExperts
from engine.runner.ranks.extension import RankExtensionFactory, RankParts
from engine.runner.ranks.loaded_rank import LoadedRank, load_rank
from engine.runner.ranks.own_card import spec_with_own_card
from engine.runner.ranks.rank_turns import LoadingTogether, RankTurns
from engine.runner.replica import LoadedPart
from ranks.collectives.call_wait import call_limit_s
from ranks.collectives.group_collective import GroupCollective, agreed_least, gathered
from ranks.joining import Arrival, arrive
from ranks.launch import RankLaunch
from ranks.reports import Arrived, Progress, RankFailed, RankReady, ReportSender, Word

_LONGEST_LOAD_S = 24 * 3600.0
"""Of the slowest rank; the conductor ends a group that makes no progress long before."""


class Follower:
    """One rank, in one generation, of one thread."""

    def __init__(
        self, launch: RankLaunch, spec: EngineSpec, make_extension: RankExtensionFactory
    ) -> None:
        self._launch, self._spec, self._make_extension = launch, spec, make_extension
        self._reports = ReportSender(
            launch.reports_address, launch.rank, launch.generation, launch.keys
        )
        self._closers = contextlib.ExitStack()
        self._closers.callback(self._reports.close)

    def run(self) -> None:
        """The whole of its life; returns after STOP. Raises what it has failed with, after it has
        told it."""
        with self._closers:
            try:
                if not self._launch.is_beside_conductor:
                    self._spec = spec_with_own_card(self._spec, self._progress)
                arrival = arrive(self._launch)
            except Exception as error:
                self._tell(error)
                raise
            self._closers.callback(arrival.close)
            try:
                self._live(arrival)
            except Exception as error:
                arrival.fail()
                self._tell(error)
                raise

    def _live(self, arrival: Arrival) -> None:
        self._reports.send(Arrived())
        arrival.await_all(_LONGEST_LOAD_S)
        self._progress("join the other ranks", 0.0)
        collective = arrival.join(call_limit_s(self._spec.options.step_timeout_s))
        own = self._load(collective)
        self._closers.callback(own.runner.close)
        extension = self._make_extension(self._parts(own.part, collective))
        self._closers.callback(extension.close)
        self._reports.send(RankReady(facts=own.facts, extension=extension.greeting))
        turns = RankTurns(
            arrival.plans,
            collective,
            own.runner,
            extension=extension,
            experts=RankExperts(own.part.decoder.experts),
            adapters=own.part.rank_adapters(
                functools.partial(agreed_least, collective, device=own.part.size.device)
            ),
        )
        while turns.take():
            for body in extension.poll():
                self._reports.send(Word(body=body))

    def _load(self, collective: GroupCollective) -> LoadedRank:
        together = LoadingTogether(collective, limit_s=_LONGEST_LOAD_S, tell=self._reports.send)
        return load_rank(self._spec, self._launch, collective, together, self._progress)

    def _parts(self, part: LoadedPart, collective: GroupCollective) -> RankParts:
        rank, num_homes = Rank(self._launch.rank, self._launch.world_size), part.homes.num_homes
        return RankParts(
            spec=self._spec,
            rank=rank,
            kv=part.pool.tensor[: part.num_blocks],
            shares=head_shares(
                self._spec.card.config,
                rank.world_size,
                num_homes=num_homes,
                num_whole_layers=whole_layers(self._spec),
            ),
            gather=functools.partial(gathered, collective),
            num_homes=num_homes,
        )

    def _progress(self, phase: str, fraction: float) -> None:
        self._reports.send(Progress(phase=phase, fraction=fraction))

    def _tell(self, error: Exception) -> None:
        if not isinstance(error, SplitserveError):
            error = InternalError(f"{type(error).__name__}: {error}")
        self._reports.send(RankFailed(code=status_of(error).code, message=error.message))
