"""A decode worker over a fake engine that a supervisor can keep alive.

`-m tests.worker.supervised_worker`; with `hangs` it never gets past its role's close, and with
`spare` it waits to be promoted.
"""

from __future__ import annotations

import asyncio
import sys

from cluster.identity import Role
from cluster.logs import configure_logging
from cluster.process.end_limit import EndLimit
from cluster.process.parent_death import die_with_parent
from cluster.world import World
from decode_worker.service import DecodeWorker
from tests.worker.worker_bench import options_for, tiny_card
from worker.engine.client import EngineClient
from worker.worker_process import Surroundings, WorkerProcess

END_LIMIT_S = 1.0


class HangingWorker(DecodeWorker):
    """Its event loop turns, and says that it is alive."""

    async def close(self) -> None:
        await asyncio.Event().wait()


async def run() -> int:
    async def find_model(_options):
        return tiny_card()

    def make_link(_entry_module, spec):
        return EngineClient(entry_module="tests.worker.fake_decode_process", spec=spec)

    surroundings = Surroundings(
        find_model=find_model, make_link=make_link, on_end=EndLimit(END_LIMIT_S).begin
    )
    kind = HangingWorker if "hangs" in sys.argv else DecodeWorker
    role = kind(3.0, World())
    options = options_for(Role.DECODE, spare="spare" in sys.argv)
    return await WorkerProcess(options, role, surroundings).run()


if __name__ == "__main__":
    die_with_parent()
    configure_logging("supervised")
    sys.exit(asyncio.run(run()))
