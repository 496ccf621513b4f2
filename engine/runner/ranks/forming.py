"""How a group comes together, from nothing to ranks that are about to load.

    place the ranks -> own device -> open what they meet in -> start them -> all arrive -> join

Over TCP the ranks that have arrived hold until the last one has: a host may fetch the model first,
and joining has the short deadline of a call.

What fails on the way ends what was begun.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from cluster.process.free_memory import free_memory_bytes
from engine.contract.spec import EngineSpec
from engine.model.load_phases import PhaseProgress
from engine.runner.ranks.group import GroupTies, RankGroup
from engine.runner.ranks.roster import Roster
from engine.runner.ranks.watch import RankWatch
from ranks.collectives.call_wait import call_limit_s
from ranks.collectives.rendezvous import choose_kind, join
from ranks.ground import Ground
from ranks.launch import CONDUCTOR
from ranks.spawner import RankPlaces, Spawner

_START_SHARE = 0.8
"""Of the time that the engine's server waits without a word: the group names its rank before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNeeds:
    """What a group is formed for."""

    spec: EngineSpec
    own_device: Callable[[], torch.device]
    """Of this process; asked once, after `place`, which may choose the GPU that CUDA is to see."""
    progress: PhaseProgress


def form_group(needs: GroupNeeds, spawner: Spawner) -> RankGroup:
    """Raises ConfigError for ranks that cannot be placed or started, RankLost, or whatever a rank
    has failed with. The thread that calls this outlives the group, which owns the spawner."""
    progress, options = needs.progress, needs.spec.options
    with contextlib.ExitStack() as closers:
        closers.callback(spawner.close)
        progress("place ranks", 0.0)
        places = spawner.place(options.tensor_parallel_size)
        ground = _open_ground(needs, places, closers)
        progress("start ranks", 0.0)
        free_bytes = free_memory_bytes() if ground.is_shared else None
        own, *others = ground.launches(needs.spec.pack(), free_bytes)
        processes = [spawner.start(launch) for launch in others]
        watch = RankWatch(processes, ground)
        closers.callback(watch.close)
        watch.start()
        roster = Roster(
            ground.inbox,
            watch,
            world_size=options.tensor_parallel_size,
            limit_s=_START_SHARE * options.start_timeout_s,
        )
        _await_arrival(roster, ground, progress)
        progress("join the other ranks", 0.0)
        limit_s = call_limit_s(options.step_timeout_s)
        collective = join(ground.meeting.rendezvous, CONDUCTOR, deadline_s=limit_s)
        closers.callback(collective.close)
        watch.on_loss(collective.abort)
        ties = GroupTies(
            launch=own,
            collective=collective,
            call_limit_s=limit_s,
            plans=ground.plans,
            roster=roster,
            watch=watch,
        )
        return RankGroup(ties, closers.pop_all(), progress)


def _open_ground(needs: GroupNeeds, places: RankPlaces, closers: contextlib.ExitStack) -> Ground:
    kind = choose_kind(needs.own_device(), is_one_host=places.is_one_host)
    ground = Ground(kind, places, _sockets_of(needs.spec, closers))
    closers.callback(ground.close)
    return ground


def _sockets_of(spec: EngineSpec, closers: contextlib.ExitStack) -> Path:
    """The engine's own folder, which its server removes however the engine ends."""
    if spec.run_folder:
        return Path(spec.run_folder)
    return Path(closers.enter_context(tempfile.TemporaryDirectory(prefix="splitserve-ranks-")))


def _await_arrival(roster: Roster, ground: Ground, progress: PhaseProgress) -> None:
    """Over TCP nobody can begin alone. In shared memory the conductor loads its part while the
    others still start: the watch lets them in."""
    if ground.is_shared:
        return
    roster.await_arrived(progress)
    while not ground.is_settled():
        roster.check()
    ground.meeting.let_all_join()
