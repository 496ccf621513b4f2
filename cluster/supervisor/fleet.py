"""Which processes a `splitserve serve` consists of, and with which words each is started."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TypeVar

from cluster.config import RouterOptions, ServeOptions, WorkerOptions
from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.launcher.protocol import NodeFacts, ProcessSpec
from cluster.options import command_line, option_specs
from cluster.process.own_python import module_argv, module_environ
from cluster.supervisor.cores import share_cores
from cluster.supervisor.devices import gpu_environ, ranks_on_fullest
from cluster.supervisor.pool import pool_sizes, worker_name
from cluster.supervisor.worker_reach import WorkerReach, check_advertised, reach_at, reach_on

_T = TypeVar("_T")
ROUTER = "router"
START_SLACK_S = 15.0
"""What a worker needs to end an engine that does not start, and to say so."""


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """What the workers of one machine share; of a cluster, each as if all were on one."""

    num_cores: int
    gpus: tuple[str, ...] = ()
    free_memory_share: float = 1.0
    """Of the memory beside GPUs, before the fleet is there."""
    address: str | None = None
    """Of this node, as others of a cluster reach it: whatever concerns its node a worker is told
    where it is launched. None: there are no others, nor ever will be."""


def plan_fleet(options: ServeOptions, machine: Machine) -> list[list[ProcessSpec]]:
    """Two stages: the router, then all workers. Ports of the router must not be 0.

    Spare workers are among those of their pool, and planned for as any other. Workers keep their
    names over restarts, and listen at free ports; where: see worker_reach.py.
    Raises ConfigError for an advertised host that nobody could reach, and for workers of one rank
    whose ranks should have sequences of their own.
    """
    check_advertised(options)
    for pool in pool_sizes(options):
        if pool.num_workers:
            _check_attention(options, pool.role)
    members = [
        (pool.role, index) for pool in pool_sizes(options) for index in range(pool.num_workers)
    ]
    gpus, sizes = _gpus(options, machine), _sizes(options)
    firsts = itertools.accumulate(sizes, initial=0)
    workers = [
        _placed(
            _worker(options, machine, role, index),
            gpu_environ(gpus, first, num_ranks=size),
            size,
        )
        for (role, index), size, first in zip(members, sizes, firsts, strict=False)
    ]
    return [
        [_watched(process, options) for process in stage] for stage in ([_router(options)], workers)
    ]


def num_ranks_of_all(options: ServeOptions) -> int:
    """Of the workers of both pools, spare ones too."""
    return sum(_sizes(options))


def _sizes(options: ServeOptions) -> list[int]:
    """Ranks of each worker, in the order in which they are placed."""
    return [
        num_ranks(options, pool.role)
        for pool in pool_sizes(options)
        for _ in range(pool.num_workers)
    ]


def _placed(process: ProcessSpec, environ: dict[str, str], ranks: int) -> ProcessSpec:
    return dataclasses.replace(process, environ={**process.environ, **environ}, ranks=ranks)


def _watched(process: ProcessSpec, options: ServeOptions) -> ProcessSpec:
    """A worker tells of a stuck engine itself, so its own limit is a little longer."""
    return dataclasses.replace(
        process,
        start_timeout_s=options.engine.start_timeout_s + START_SLACK_S,
        silence_s=options.process_silence_s,
    )


def _with_share(options: ServeOptions, machine: Machine, role: Role) -> ServeOptions:
    """The operator's options, with a worker's share of this machine's cores and memory. A spare
    has memory of its own, and computes only in another's place: cores are not divided by it."""
    engine, gpus = options.engine, _gpus(options, machine)
    cores = share_cores(machine.num_cores, options.prefill, options.decode)[role]
    if not gpus and engine.niceness == 0:
        engine = dataclasses.replace(engine, niceness=cores.niceness)
    whole = engine.memory_share * (1.0 if gpus else machine.free_memory_share)
    engine = dataclasses.replace(
        engine,
        num_threads=engine.num_threads or cores.num_threads,
        block_size_tokens=block_size_of(options, role),
        tensor_parallel_size=num_ranks(options, role),
        expert_exchange=exchange_of(options, role),
        data_parallel_attention=has_data_parallel_attention(options, role),
        memory_share=memory_share(whole, _num_beside(options, gpus)),
    )
    return dataclasses.replace(options, engine=engine)


def block_size_of(options: ServeOptions, role: Role) -> int:
    """Of each worker of a pool."""
    own = _of_pool(role, options.prefill_block_size_tokens, options.decode_block_size_tokens)
    return options.engine.block_size_tokens if own is None else own


def num_ranks(options: ServeOptions, role: Role) -> int:
    """Of each worker of a pool."""
    own = _of_pool(role, options.prefill_tensor_parallel_size, options.decode_tensor_parallel_size)
    return options.engine.tensor_parallel_size if own is None else own


def exchange_of(options: ServeOptions, role: Role) -> str:
    """How rows reach other ranks' experts in each worker of a pool."""
    own = _of_pool(role, options.prefill_expert_exchange, options.decode_expert_exchange)
    return options.engine.expert_exchange if own is None else own


def has_data_parallel_attention(options: ServeOptions, role: Role) -> bool:
    """Whether the ranks of each worker of a pool share routed experts alone."""
    own = _of_pool(
        role, options.prefill_data_parallel_attention, options.decode_data_parallel_attention
    )
    return options.engine.data_parallel_attention if own is None else own


def _check_attention(options: ServeOptions, role: Role) -> None:
    if not has_data_parallel_attention(options, role) or num_ranks(options, role) > 1:
        return
    other = Role.DECODE if role is Role.PREFILL else Role.PREFILL
    raise ConfigError(
        "data_parallel_attention gives each rank of a group sequences of its own, and each "
        f"{role} worker is one rank; use --{role}-tensor-parallel-size 2 or more, or "
        f"--{other}-data-parallel-attention for the {other} workers alone",
        param="data_parallel_attention",
    )


def _of_pool(role: Role, prefill: _T, decode: _T) -> _T:
    return prefill if role is Role.PREFILL else decode


def _num_beside(options: ServeOptions, gpus: tuple[str, ...]) -> int:
    """Ranks of the fullest GPU; without GPUs the workers, each of which divides its share among
    the ranks that it has on one machine."""
    sizes = _sizes(options)
    return ranks_on_fullest(gpus, sizes) if gpus else len(sizes)


def memory_share(whole: float, num_beside: int) -> float:
    """Of a device's memory, for each that computes there: `whole` over those of the fullest one.

    Rounded down to four digits. Known before the first start and never changed: an engine that is
    started again later fits where the one before it did.
    """
    each = whole / max(1, num_beside)
    return max(0.001, math.floor(each * 1e4) / 1e4)


def warning_of_shared_gpus(options: ServeOptions, machine: Machine) -> str | None:
    """What two engines on one GPU cost, for the operator; None where each has its own."""
    gpus, sizes = _gpus(options, machine), _sizes(options)
    if not gpus or sum(sizes) <= len(gpus):
        return None
    if max(sizes) > len(gpus):
        return (
            f"a worker of {max(sizes)} ranks does not start on {len(gpus)} GPU(s): each rank takes "
            f"one of its own; lower --tensor-parallel-size to {len(gpus)}"
        )
    fitting = min(options.decode, len(gpus) // num_ranks(options, Role.DECODE))
    fewer = f"--prefill 0 --decode {fitting}"
    if any(pool.num_spares for pool in pool_sizes(options)):
        fewer += " --warm-spares 0"
    return (
        f"{len(sizes)} workers with {sum(sizes)} ranks in all share {len(gpus)} GPU(s): those on "
        "one GPU hold weights of their own and compute in turns; "
        f"{fewer} gives each rank a GPU of its own"
    )


def _gpus(options: ServeOptions, machine: Machine) -> tuple[str, ...]:
    return () if options.engine.device == "cpu" else machine.gpus


def _router(options: ServeOptions) -> ProcessSpec:
    router: RouterOptions = dataclasses.replace(options.router, model=options.model)
    words = command_line(router, leave_out=frozenset({"store"}))
    spec = _process(ROUTER, module_argv("cli", "router", *words))
    return dataclasses.replace(spec, environ={**spec.environ, **_unseen(router)})


def _unseen(router: RouterOptions) -> dict[str, str]:
    """What every user of the machine could read in a command line: the password of the store."""
    url = router.store.store
    return {} if url is None else {option_specs(RouterOptions)["store"].variable: url}


def _worker(options: ServeOptions, machine: Machine, role: Role, index: int) -> ProcessSpec:
    here = _worker_argv(options, machine, role, index, reach_on(options))
    if machine.address is None:
        return _process(worker_name(role, index), here)

    def argv_at(node: NodeFacts) -> tuple[str, ...]:
        there = dataclasses.replace(
            machine, num_cores=node.num_cores, free_memory_share=node.free_memory_share
        )
        reach = reach_at(options, own=str(machine.address), there=node.address)
        return _worker_argv(options, there, role, index, reach)

    return dataclasses.replace(_process(worker_name(role, index), here), argv_at=argv_at)


def _worker_argv(
    options: ServeOptions, machine: Machine, role: Role, index: int, reach: WorkerReach
) -> tuple[str, ...]:
    shared = _with_share(options, machine, role)
    worker = WorkerOptions(
        role=role,
        worker_id=worker_name(role, index),
        host=reach.listens_on,
        router=reach.router_address(options),
        drain_timeout_s=options.router.drain_timeout_s,
        spare=any(pool.num_spares for pool in pool_sizes(options) if pool.role is role),
        peers=options.peers,
        traces=options.router.traces,
        model=options.model,
        engine=shared.engine,
    )
    words = command_line(worker, leave_out=frozenset({"role"}))
    return module_argv("cli", f"{role}-worker", *words)


def _process(name: str, argv: tuple[str, ...]) -> ProcessSpec:
    return ProcessSpec(name=name, argv=argv, environ=module_environ())
