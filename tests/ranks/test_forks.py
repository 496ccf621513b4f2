"""Forks in place of children: the same words at their ends."""

from __future__ import annotations

import os
import signal

import psutil

from cluster.process.own_python import module_environ
from tests.ranks.fork_client import ForkedChild, fork_client

LIMIT_S = 60.0


def fork_of(module: str) -> ForkedChild:
    return fork_client().begin(module, dict(os.environ) | module_environ())


def test_a_fork_tells_its_exit_code_and_what_it_wrote() -> None:
    child = fork_of("no.such.module")
    child.stdin.close()
    assert "No module named 'no'" in child.stderr.read().decode()
    assert child.wait(LIMIT_S) == child.poll() == 1
    assert not psutil.pid_exists(child.pid)
    child.stderr.close()


def test_a_fork_that_is_killed_tells_its_signal_also_when_it_was_stopped() -> None:
    child = fork_of("tests.engine.runner.ranks.echo_rank")  # it waits for its launch
    os.kill(child.pid, signal.SIGSTOP)
    assert child.poll() is None
    child.kill()
    assert child.wait(LIMIT_S) == -signal.SIGKILL
    child.kill()
    for pipe in (child.stdin, child.stderr):
        pipe.close()


def test_a_fork_has_none_of_the_descriptors_of_others() -> None:
    first, second = (fork_of("tests.engine.runner.ranks.echo_rank") for _ in range(2))
    first.kill()
    assert first.wait(LIMIT_S) == -signal.SIGKILL
    assert first.stderr.read() == b""  # its end has come, though the other one lives
    second.kill()
    assert second.wait(LIMIT_S) == -signal.SIGKILL
    for pipe in (first.stdin, first.stderr, second.stdin, second.stderr):
        pipe.close()
