"""Which processes a `splitserve serve` consists of, and with which words each is started."""

from __future__ import annotations

import dataclasses

from cluster.config import RouterOptions, ServeOptions, WorkerOptions
from cluster.identity import Role
from cluster.launcher.own_python import module_argv, module_environ
from cluster.launcher.protocol import ProcessSpec
from cluster.options import command_line
from cluster.supervisor.cores import threads_per_worker

ROUTER = "router"


def plan_fleet(options: ServeOptions, *, num_cores: int) -> list[list[ProcessSpec]]:
    """Two stages: the router, then all workers. Ports of the router must not be 0.

    Workers listen on the router's host at free ports and keep their names over restarts.
    """
    num_workers = options.prefill + options.decode
    if options.engine.num_threads is None:
        threads = threads_per_worker(num_cores, num_workers)
        engine = dataclasses.replace(options.engine, num_threads=threads)
        options = dataclasses.replace(options, engine=engine)
    pools = [(Role.PREFILL, options.prefill), (Role.DECODE, options.decode)]
    workers = [_worker(options, role, i) for role, count in pools for i in range(count)]
    return [[_router(options)], workers]


def _router(options: ServeOptions) -> ProcessSpec:
    router: RouterOptions = dataclasses.replace(options.router, model=options.model)
    return _process(ROUTER, "router", command_line(router))


def _worker(options: ServeOptions, role: Role, index: int) -> ProcessSpec:
    name = f"{role}-{index}"
    worker = WorkerOptions(
        role=role,
        worker_id=name,
        host=_reachable(options.router.host),
        router=f"{_reachable(options.router.host)}:{options.router.grpc_port}",
        drain_timeout_s=options.router.drain_timeout_s,
        model=options.model,
        engine=options.engine,
    )
    return _process(name, f"{role}-worker", command_line(worker, leave_out=frozenset({"role"})))


def _process(name: str, command: str, words: list[str]) -> ProcessSpec:
    argv = module_argv("cli", command, *words)
    return ProcessSpec(name=name, argv=argv, environ=module_environ())


def _reachable(host: str) -> str:
    """Where processes of this machine reach a listener on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
