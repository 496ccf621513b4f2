"""Ranks as processes that actors of a Ray cluster host: the same processes, in other places.

    place   room: the group of the process that we are in, or a placement group of our own, whose
            first bundle is on this node and held for the conductor; an actor in each bundle
    start   a rank's actor starts it as its child, with the launch on its standard input
    close   ranks, actors, the group and a Ray of our own: nothing of them is left

Ray knows nothing of steps: it places, starts, passes logs on and notices deaths.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import MappingProxyType

from cluster.deadline import Clock, Deadline
from cluster.errors import ConfigError
from cluster.launcher.protocol import VISIBLE_DEVICES, ProcessSpec
from cluster.launcher.ray.bundles import bundle_of_a_rank, order_of_bundles
from cluster.launcher.ray.hosting import ActorPlace, Host, begin_hosts, environ_to_share
from cluster.launcher.ray.joining import await_hosts
from cluster.launcher.ray.machine import HostFacts, is_there, own_facts
from cluster.launcher.ray.open_ray import HostWait, OpenRay
from cluster.launcher.ray.own_group import PLACEMENT_GROUP
from cluster.launcher.ray.placing import PlacedGroup, group_of, place_group
from cluster.launcher.ray.session import RaySession
from cluster.logs import get_logger
from cluster.process.exit_watch import KILL_TIMEOUT_S
from cluster.process.own_python import module_argv, module_environ
from ranks.launch import CONDUCTOR, RankLaunch
from ranks.ray.host_names import check_users, names_of_hosts
from ranks.ray.ray_rank import RayRank
from ranks.spawner import RankPlaces

_START_TIMEOUT_S = 30.0
_POLL_S = 0.02
NOTHING: Mapping[str, str] = MappingProxyType({})
NO_WAIT = HostWait()
_log = get_logger("ranks")


class RaySpawner:
    """A Spawner. Its thread of `place` must outlive it: a Ray of our own ends with that thread."""

    def __init__(
        self,
        entry_module: str,
        *,
        name: str,
        address: str | None,
        uses_gpus: bool,
        environ: Mapping[str, str] = NOTHING,
        hosts: OpenRay | None = None,
        patience: HostWait = NO_WAIT,
        clock: Clock = time.monotonic,
    ) -> None:
        """`name` is the group's, and no other's on the cluster: of a worker and its incarnation.
        `address`: of a cluster, or None for $RAY_ADDRESS's, and else a Ray of our own.
        `uses_gpus`: each rank takes a GPU; CUDA_VISIBLE_DEVICES of the conductor is set, too.
        `environ`: for ranks, unless this process's environment or their node's says otherwise.
        `hosts`: that join a Ray of our own. `patience`: with a cluster that is too small yet."""
        self._entry_module = entry_module
        self._name = name
        self._address = address
        self._uses_gpus = uses_gpus
        self._environ = environ
        self._hosts = hosts
        self._patience = patience
        self._clock = clock
        self._session: RaySession | None = None
        self._group: PlacedGroup | None = None
        self.hosts: dict[int, Host] = {}
        """By rank; the conductor's as well where its bundle is held for it."""
        self._names: tuple[str, ...] = ()
        self._started: list[RayRank] = []

    def place(self, world_size: int) -> RankPlaces:
        """See Spawner. Connects to Ray, or starts it."""
        self._session = session = RaySession.open(
            self._address, num_ranks=world_size, hosts=self._hosts
        )
        self._group = group = self._group_for(session, world_size)
        order = order_of_bundles(group.nodes)
        first = CONDUCTOR if group.is_own else CONDUCTOR + 1  # where the conductor is already
        places = {
            self._actor(rank): ActorPlace(group=group, bundle=order[rank])
            for rank in range(first, world_size)
        }
        hosts = begin_hosts(session, places)
        self.hosts = dict(enumerate(hosts, start=first))
        facts = self._facts(world_size)
        check_users(facts)
        self._names = names_of_hosts(facts)
        if self._uses_gpus and group.is_own:
            os.environ[VISIBLE_DEVICES] = ",".join(facts[CONDUCTOR].gpus)
        _log.info(
            "ranks have their places",
            hosts=list(self._names),
            group="our own" if group.is_own else "that of this process",
            ray="our own" if session.started_ray else session.address,
        )
        is_one_host = len(set(self._names)) == 1
        address = "127.0.0.1" if is_one_host else facts[CONDUCTOR].address
        return RankPlaces(nodes=self._names, address=address)

    def start(self, launch: RankLaunch) -> RayRank:
        """See Spawner."""
        assert self._session is not None, "place comes first"
        host = self.hosts[launch.rank]
        spec = ProcessSpec(
            name=self._actor(launch.rank),
            argv=module_argv(self._entry_module),
            environ={**module_environ(), VISIBLE_DEVICES: ",".join(host.facts.gpus)},
            stdin=launch.pack(),
        )
        try:
            begun = host.actor.start.remote(spec, {**self._environ, **environ_to_share()})
            pid = self._session.ray.get(begun, timeout=_START_TIMEOUT_S)
        except self._session.ray.exceptions.RayError as cause:
            raise ConfigError(
                f"rank {launch.rank} cannot be started: {host.in_words(cause)}"
            ) from cause
        node = self._names[launch.rank]
        rank = RayRank(self._session, host, rank=launch.rank, pid=pid, node=node)
        self._started.append(rank)
        return rank

    def close(self) -> None:
        """See Spawner."""
        if self._session is None:
            return
        try:
            self._end_all(self._session)
        except Exception:  # Ray is gone, and with it all that it held
            _log.warning("Ray could not be told that a group of ranks is over", exc_info=True)
        finally:
            self._started, self.hosts, self._group = [], {}, None
            self._session.close()
            self._session = None

    def _end_all(self, session: RaySession) -> None:
        for rank in self._started:
            rank.kill()
        for host in self.hosts.values():
            host.end(session)
        if self._group is not None:
            self._group.remove(session)
        deadline = Deadline.after(KILL_TIMEOUT_S, self._clock)
        pids = [host.facts.pid for host in self.hosts.values() if host.is_on_this_machine]
        pids += [rank.pid for rank in self._started if rank.is_on_this_machine]
        while any(map(is_there, pids)) and not deadline.has_passed:
            time.sleep(_POLL_S)

    def _group_for(self, session: RaySession, world_size: int) -> PlacedGroup:
        given = group_of(session, os.environ.get(PLACEMENT_GROUP))
        if given is None:
            bundle = bundle_of_a_rank(session.nodes(), uses_gpus=self._uses_gpus)
            bundles = [bundle] * world_size
            await_hosts(session, bundles, first_node=session.node_id, patience=self._patience)
            return place_group(session, self._name, bundles, first_node=session.node_id)
        if len(given.nodes) < world_size:
            raise ConfigError(
                f"the placement group of this process has {len(given.nodes)} bundle(s), and "
                f"{world_size} ranks need one each; give it more, or lower --tensor-parallel-size",
                param="tensor_parallel_size",
            )
        return given

    def _actor(self, rank: int) -> str:
        return f"{self._name}-rank-{rank}"

    def _facts(self, world_size: int) -> Mapping[int, HostFacts]:
        hosts = {rank: host.facts for rank, host in self.hosts.items()}
        if CONDUCTOR not in hosts:
            assert self._session is not None
            hosts[CONDUCTOR] = own_facts(self._session.ray)
        return {rank: hosts[rank] for rank in range(world_size)}
