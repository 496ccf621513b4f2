"""The process of a rank that is not the conductor: started by ranks/processes.py, or by Ray.

    read the launch from standard input -> arrive, load, take plans -> STOP, or the group is lost

A worker package's entry module calls `rank_main` with its extension factory.
The process dies with its parent, and leaves SIGINT to it.
"""

from __future__ import annotations

import os
import signal
import sys

import structlog

from cluster.errors import SplitserveError, status_of
from cluster.log_writer import STANDARD_ERROR
from cluster.logs import configure_logging
from cluster.process.own_cores import available_cores
from cluster.process.parent_death import die_with_parent
from cluster.process.priority import step_back
from engine.contract.spec import EngineSpec
from engine.process.memory_habits import keep_freed_memory, spare_loaded_objects
from engine.process.threads import use_threads_to_load, use_threads_to_serve
from engine.runner.ranks.extension import RankExtensionFactory, RankParts
from engine.runner.ranks.follower import Follower
from ranks.launch import RankLaunch
from ranks.line import RankExtension

_LOG = structlog.get_logger()


def rank_main(make_extension: RankExtensionFactory) -> None:
    """The whole life of the process."""
    launch = RankLaunch.unpack(sys.stdin.buffer.read())
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_rank(launch, make_extension)


def run_rank(launch: RankLaunch, make_extension: RankExtensionFactory) -> None:
    """In a process that is this rank's alone; ends it with exit code 1 where the rank fails."""
    spec = EngineSpec.unpack(launch.spec)
    configure_logging(f"{spec.worker_id}/rank-{launch.rank}")
    keep_freed_memory()
    step_back(spec.options.niceness)
    use_threads_to_load(_threads_of_host(spec, launch), num_beside=launch.num_beside)

    def made(parts: RankParts) -> RankExtension:
        use_threads_to_serve(parts.kv.device)
        extension = make_extension(parts)
        spare_loaded_objects()
        return extension

    try:
        Follower(launch, spec, made).run()
    except SplitserveError as error:
        _LOG.error("this rank cannot go on", code=status_of(error).code, error=error.message)
        _leave()
    except Exception:
        _LOG.exception("this rank cannot go on")
        _leave()


def _threads_of_host(spec: EngineSpec, launch: RankLaunch) -> int | None:
    """Where the conductor is, as its engine was told; elsewhere no more than there are cores."""
    told = spec.options.num_threads
    if told is None or launch.is_beside_conductor:
        return told
    return min(told, available_cores())


def _leave() -> None:
    """At once: what a transport or a device still holds goes with the process."""
    STANDARD_ERROR.flush()
    os._exit(1)
