"""Rank 0's part of a replica, loaded side by side with the others'.

form the group -> load the own part -> agree on the pool -> capture decode steps, on GPUs
               -> all ready -> warm up together
"""

from __future__ import annotations

import functools
from dataclasses import replace

from engine.contract.spec import EngineSpec
from engine.model.experts.balancing import Balancing
from engine.model.experts.rank_experts import RankExperts
from engine.model.experts.rebalancer import Rebalancer
from engine.model.load_phases import PhaseProgress, PhaseTimer
from engine.runner.model_runner import Replica
from engine.runner.ranks.group import RankGroup
from engine.runner.ranks.group_runner import GroupRunner
from engine.runner.ranks.group_turn import ConductorTurn
from engine.runner.ranks.loaded_rank import load_rank
from engine.runner.replica import LoadedPart, finish_replica, memory_errors
from engine.runner.replica_adapters import GroupAdapters, ReplicaAdapters
from ranks.collectives.group_collective import agreed_least


def load_conductor(spec: EngineSpec, group: RankGroup, progress: PhaseProgress) -> Replica:
    """The replica, whose `others` are the group. Raises as load_replica, RankLost, or what another
    rank has failed with; the group is closed then."""

    def told(phase: str, fraction: float) -> None:
        group.check()  # between two layers: nobody loads on for a group that is gone
        progress(phase, fraction)

    try:
        with memory_errors():
            return _load(spec, group, PhaseTimer(told))
    except BaseException:
        group.close()
        raise


def _load(spec: EngineSpec, group: RankGroup, phases: PhaseTimer) -> Replica:
    own = load_rank(spec, group.launch, group.collective, group, phases)
    group.before_leaving(own.runner.close)
    phases("wait for the other ranks", 0.0)
    group.await_ready(own.facts)
    balancing = _balancing(spec, own.part, group)
    runner = GroupRunner(own.runner, group, balancing)
    replica = finish_replica(spec, own.part, runner, phases)
    balance = None if balancing is None else balancing.balance
    return replace(
        replica,
        others=group,
        group_turn=ConductorTurn(group, runner, balance),
        adapters=_adapters(own.part, group),
    )


def _adapters(part: LoadedPart, group: RankGroup) -> ReplicaAdapters | None:
    """Of all ranks; None: none are loaded."""
    agree = functools.partial(agreed_least, group.collective, device=part.size.device)
    own, bank = part.rank_adapters(agree), part.decoder.bank
    if own is None or bank is None:
        return None
    return GroupAdapters(own, bank, group.tell_of_adapters, group.loss_after)


def _balancing(spec: EngineSpec, part: LoadedPart, group: RankGroup) -> Balancing | None:
    """None: the model has no experts, or nobody has asked for it."""
    experts, interval_s = part.decoder.experts, spec.options.expert_rebalance_interval_s
    if interval_s is None or not experts.placements:
        return None
    rebalancer = Rebalancer(experts.placements, interval_s)
    return Balancing(rebalancer, RankExperts(experts), group.tell_of_experts)
