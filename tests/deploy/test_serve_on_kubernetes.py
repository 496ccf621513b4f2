"""`splitserve serve --launcher kubernetes` on a release whose pools were installed without workers:
they start, answer through the Service, and are gone again after Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.run_cli import ROOT, clean_environ
from tests.cli.test_serve_release import read_until
from tests.deploy.chart import CHART, Manifest
from tests.deploy.release import NAME, VALUES, Release, model_cache
from tests.deploy.test_release import first_token
from tests.mini_cluster.machine import running_cluster

pytest.importorskip("kubernetes", reason="an extra")
pytestmark = [pytest.mark.minutes, pytest.mark.timeout(900)]
NO_WORKERS: Manifest = VALUES | {"pools": {"prefill": {"replicas": 0}, "decode": {"replicas": 0}}}
DEADLINE_S = 240.0


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Release]:
    """Its router waits for workers: helm does not wait for it."""
    with running_cluster(tmp_path, model_cache()) as cluster:
        made = Release(cluster)
        made.claim()
        words = ("install", NAME, str(CHART), "--values", "-")
        cluster.helm(*words, stdin=json.dumps(NO_WORKERS))
        yield made


async def test_pools_without_workers_are_started_answer_and_are_gone_after_ctrl_c(
    release: Release, tmp_path: Path
) -> None:
    config = str(release.cluster.server.kubeconfig(""))
    command = ("serve", "--launcher", "kubernetes", "--kubernetes", f"default/{NAME}")
    process = subprocess.Popen(
        [sys.executable, "-m", "cli", *command],
        cwd=ROOT,
        env=clean_environ(KUBECONFIG=config, HOME=str(tmp_path)),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said = read_until(process, "ready in .* release default/llm")
        assert any("loads its model" in line for line in said)
        await first_token(release)
        process.send_signal(signal.SIGINT)
        read_until(process, "decode +1 -> 0")
        assert process.wait(DEADLINE_S) == 130
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
    assert release.pods("decode-worker") == release.pods("prefill-worker") == []
