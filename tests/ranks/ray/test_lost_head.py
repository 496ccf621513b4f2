"""A fleet on a Ray whose head is gone: told, stopped in order, and nothing is left of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.run_cli import ROOT, clean_environ

DEADLINE_S = 120.0


def test_a_fleet_is_told_that_its_head_is_gone_and_ends_its_processes_by_itself() -> None:
    environ = clean_environ()
    environ.pop("RAY_ADDRESS", None)
    before = set(Path("/tmp").glob("splitserve-ray-*"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.ranks.ray.lost_head"],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert "the head of the Ray cluster (its GCS) has not answered" in told["loss"]
    assert told["still_serves"] and told["is_gone"]
    assert set(Path("/tmp").glob("splitserve-ray-*")) <= before
