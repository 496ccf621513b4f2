"""`serve --launcher kubernetes` through the real client, on a cluster whose pods a test readies."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_cli import ROOT, cli
from tests.cli.test_scale_on_kubernetes import Release
from tests.mini_cluster.cluster import MiniCluster, mini_cluster

pytest.importorskip("kubernetes", reason="an extra")
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
DEADLINE_S = 60.0
SERVE = ("serve", "--launcher", "kubernetes", "--kubernetes", "default/chat")


class Living(Release):
    """Its controllers and its pods' kubelet work all the time."""

    def __init__(self, cluster: MiniCluster, home: Path) -> None:
        super().__init__(cluster, home)
        self._create("nodes", {"metadata": {"name": "one"}})
        self._is_over = threading.Event()
        self._living = threading.Thread(target=self._live, daemon=True)
        self._living.start()

    def size(self, pool: str, replicas: int) -> None:
        store = self._cluster.store

        def sized(draft: dict[str, Any]) -> None:
            draft["spec"]["replicas"] = replicas

        edit = ("deployments.apps", "default", f"chat-{pool}", sized)
        self._cluster.call(lambda: store.edit(*edit))

    def delete(self, pool: str) -> None:
        store = self._cluster.store
        self._cluster.call(lambda: store.delete("deployments.apps", "default", f"chat-{pool}"))

    def close(self) -> None:
        self._is_over.set()
        self._living.join(DEADLINE_S)

    def _live(self) -> None:
        while not self._is_over.wait(0.1):
            self.settle()
            self.ready_all()


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Living]:
    with mini_cluster(tmp_path) as cluster:
        made = Living(cluster, tmp_path)
        try:
            yield made
        finally:
            made.close()


@contextmanager
def serving(release: Living, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "cli", *SERVE, *words],
        cwd=ROOT,
        env=release.environ(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def read_until(process: subprocess.Popen[str], pattern: str) -> list[str]:
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line.rstrip("\n"))
        if re.search(pattern, line):
            return lines
    raise AssertionError(f"{pattern!r} was not said:\n" + "\n".join(lines))


def sizes(release: Living) -> tuple[int, int]:
    return release.spec("prefill")["replicas"], release.spec("decode")["replicas"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_pools_that_stood_at_none_serve_until_a_signal_and_go_back(
    release: Living, number: signal.Signals, code: int
) -> None:
    release.size("prefill", 0)
    release.size("decode", 0)
    with serving(release, "--decode", "2") as process:
        said = "\n".join(read_until(process, r"ready in .* release default/chat"))
        assert sizes(release) == (1, 2)
        assert re.search(r"decode +0 -> 2", said) and re.search(r"chat-decode-\S+ +ready on", said)
        read_until(process, r"end +Ctrl-C puts back decode to 0, prefill to 0")
        process.send_signal(number)
        read_until(process, r"decode +2 -> 0")
        assert process.wait(DEADLINE_S) == code
    assert sizes(release) == (0, 0)


def test_a_release_that_runs_is_watched_and_left_as_it_is(release: Living) -> None:
    with serving(release) as process:
        read_until(process, "Ctrl-C leaves all pools as they are")
        assert release.run("scale", "decode=2", "--yes").returncode == 0
        read_until(process, r"decode +2 of 2 ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    assert sizes(release) == (1, 2)


def test_what_a_release_has_in_its_values_is_refused_by_name(release: Living) -> None:
    done = cli(*SERVE, "--model", "other", "--max-num-seqs", "3", environ=release.environ())
    assert done.returncode == 2
    assert "--model" in done.stderr and "--max-num-seqs" in done.stderr
    assert "helm upgrade" in done.stderr


def test_a_release_without_its_launcher_and_a_launcher_without_a_release_are_refused() -> None:
    done = cli("serve", "--launcher", "kubernetes")
    assert done.returncode == 2 and "--kubernetes [NAMESPACE/]RELEASE" in done.stderr
    done = cli("serve", "--kubernetes", "default/chat")
    assert done.returncode == 2 and "--launcher kubernetes" in done.stderr


def test_what_the_api_server_refuses_ends_with_its_words_and_nothing_changed(
    release: Living,
) -> None:
    release.size("decode", 0)
    done = cli(*SERVE, environ=release.environ(release.looker()))
    assert done.returncode == 4
    assert "cannot patch" in done.stderr and "deployments/scale" in done.stderr
    assert sizes(release)[1] == 0


def test_a_size_of_a_role_that_no_pool_has_is_refused(release: Living) -> None:
    release.delete("prefill")
    done = cli(*SERVE, "--prefill", "2", environ=release.environ())
    assert done.returncode == 4 and "no pool of prefill workers" in done.stderr
