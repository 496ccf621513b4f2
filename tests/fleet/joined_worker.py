"""A worker more than a running fleet has: started by hand, as an operator may."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.join_token import JOIN_TOKEN, operators_token
from tests.fleet.support import START_TIMEOUT_S, Fleet, clean_environment, wait_for


@contextmanager
def joined_worker(fleet: Fleet, role: str, name: str, *arguments: str, log: Path) -> Iterator[None]:
    """Ready meanwhile; afterwards the router knows of it no more."""
    command = [sys.executable, "-m", "cli", f"{role}-worker", "--worker-id", name, *arguments]
    command += ["--router", fleet.grpc_address]
    token = operators_token()
    assert token is not None, "the fleet has made one"
    environ = {**clean_environment(), JOIN_TOKEN: token}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environ)

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()[-4000:]
        return _states(fleet).get(name) == "ready"

    try:
        wait_for(is_ready, timeout_s=START_TIMEOUT_S, what=f"{name}, ready")
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        finally:
            process.kill()
    wait_for(lambda: name not in _states(fleet), timeout_s=60, what=f"{name}, gone")


def _states(fleet: Fleet) -> dict[str, str]:
    members = fleet.status(check=False)["members"]
    return {member["worker_id"]: member["state"] for member in members}
