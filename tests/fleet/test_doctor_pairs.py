"""`splitserve doctor --pairs` of real workers: blocks travel, and one that stands is named."""

from __future__ import annotations

import json
import os
import signal

import psutil
import pytest

from tests.cli.run_cli import clean_environ, cli

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def examined(fleet) -> dict[str, dict]:
    done = cli(
        *("doctor", "--pairs", "-o", "json", "--grpc", fleet.grpc_address),
        environ=clean_environ(),
        timeout_s=200.0,
    )
    assert done.returncode in (0, 1), done.stderr
    return {line["check"]: line for line in json.loads(done.stdout)}


def test_blocks_travel_over_every_pair_and_a_worker_that_stands_is_named(double_fleet):
    found = examined(double_fleet)
    pairs = [f"pair prefill-{p}->decode-{d}" for d in (0, 1) for p in (0, 1)]
    assert list(found) == pairs, found
    for line in found.values():
        assert line["verdict"] == "ok", line
        assert "KiB in" in line["text"] or "MiB in" in line["text"], line
        assert "verified" in line["text"]
    pid = next(m["pid"] for m in double_fleet.status()["members"] if m["worker_id"] == "prefill-1")
    standing = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in standing:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        found = examined(double_fleet)
    finally:
        for process in standing:
            if process.is_running():
                os.kill(process.pid, signal.SIGCONT)
    assert found["pair prefill-0->decode-0"]["verdict"] == "ok", found
    assert found.get("pair prefill-1->decode-0", {"verdict": "gone"})["verdict"] != "ok", found
