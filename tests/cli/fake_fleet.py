"""A `splitserve serve` of tiny programs: python -m tests.cli.fake_fleet LOGS NAME=SOURCE...

The first program is the router's stage; every process prints its pid in its ready line.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cli.serve import SupervisedFleet
from cli.serve_run import ServeRun
from cluster.config import RouterOptions, ServeOptions
from tests.cluster.child_programs import program

if __name__ == "__main__":
    logs, *named = sys.argv[1:]
    specs = [program(source, name=name) for name, _, source in (n.partition("=") for n in named)]
    options = ServeOptions(router=RouterOptions(drain_timeout_s=20.0))

    async def run() -> int:
        return await ServeRun(SupervisedFleet(options, [specs[:1], specs[1:]], Path(logs))).run()

    sys.exit(asyncio.run(run()))
