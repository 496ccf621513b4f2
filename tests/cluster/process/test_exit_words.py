"""Every end of a process has words, also that by a signal without a name."""

from __future__ import annotations

import signal

import pytest

from cluster.launcher.protocol import ProcessExit
from cluster.process.exit_words import exit_in_words
from ranks.spawner import RankEnd

UNNAMED = signal.SIGRTMIN + 6


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-signal.SIGKILL, "signal SIGKILL"),
        (-UNNAMED, f"signal {UNNAMED}"),
    ],
)
def test_workers_and_ranks_have_the_same_words_for_the_same_end(status: int, words: str) -> None:
    assert exit_in_words(status) == words
    assert ProcessExit(status=status).in_words == words
    assert RankEnd(exit_code=status).ending == words
