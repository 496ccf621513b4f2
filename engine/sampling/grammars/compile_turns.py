"""Grammars that wait to be compiled: their owners take turns, each with its own in order.

put, once -> taken at its owner's turn
         '-> cancelled: passed over
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future

from llguidance import LLMatcher

from cluster.grammar import Grammar


class CompileTurns:
    """Of one compiler. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[bytes, deque[tuple[Grammar, Future[LLMatcher]]]] = {}
        """By owner: whose turn is next first, and of each the oldest first. None is empty."""

    def put(self, grammar: Grammar, result: Future[LLMatcher]) -> None:
        """At the end of the line of the grammar's owner."""
        with self._lock:
            self._lines.setdefault(grammar.owner, deque()).append((grammar, result))

    def take(self) -> tuple[Grammar, Future[LLMatcher]] | None:
        """What is compiled next, which is nobody else's to compile; None: nothing waits."""
        with self._lock:
            while self._lines:
                owner = next(iter(self._lines))
                line = self._lines.pop(owner)
                while line:
                    grammar, result = line.popleft()
                    if result.set_running_or_notify_cancel():
                        if line:
                            self._lines[owner] = line
                        return grammar, result
        return None

    def cancel_all(self) -> None:
        """Nobody compiles any more."""
        with self._lock:
            for line in self._lines.values():
                for _, result in line:
                    result.cancel()
            self._lines.clear()
