"""A fleet of one process on a Ray of its own, whose head stops answering; says what it saw."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from functools import partial

import psutil

from cluster.launcher.ray import launcher
from cluster.launcher.ray import session as session_module
from cluster.launcher.ray.head_watch import watch_head
from cluster.launcher.ray.holdings import Holdings
from cluster.launcher.ray.launcher import RayLauncher
from cluster.launcher.ray.session import RaySession
from cluster.process.parent_death import die_with_parent
from cluster.process.thread_call import exit_past_calls
from cluster.supervisor.supervisor import Supervisor
from tests.cluster.child_programs import SERVES_UNTIL_SIGTERM, program


def main() -> int:
    """Its head is stopped: it accepts connections, and answers nobody."""
    die_with_parent()
    launcher.watch_head = partial(watch_head, silence_s=2.0)  # type: ignore[attr-defined]
    launcher.Holdings = partial(Holdings, patience_s=1.0)  # type: ignore[misc,assignment]
    session_module.CLOSE_TIMEOUT_S = 2.0
    session = RaySession.open(None, num_ranks=1)
    place = RayLauncher(
        session, uses_gpus=False, log_dir=None, on_warning=lambda name, level, text: None
    )
    told = asyncio.run(fleet(place))
    place.close()
    session.close()
    print(json.dumps(told), flush=True)
    return exit_past_calls(0)


async def fleet(place: RayLauncher) -> dict[str, object]:
    supervisor = Supervisor(place, lambda news: None)
    spec = replace(program(SERVES_UNTIL_SIGTERM, name="decode-0"), ranks=1)
    await supervisor.start([[spec]])
    (child,) = supervisor.children
    process = psutil.Process(child.pid)
    children = psutil.Process().children(recursive=True)
    (head,) = [found for found in children if found.name() == "gcs_server"]
    head.suspend()
    await supervisor.lost.wait()
    still_serves = process.is_running()
    await supervisor.stop(30.0)
    return {
        "loss": str(supervisor.loss),
        "still_serves": still_serves,
        "is_gone": not process.is_running(),
    }


if __name__ == "__main__":
    sys.exit(main())
