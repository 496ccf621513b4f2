"""Grammars that wait to be compiled: their owners take turns, each with its own in order.

put, by everybody who asks for it -> taken, once, at the first of those turns
                                  '-> cancelled, or done for another owner: passed over
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

from llguidance import LLMatcher

from cluster.grammar import Grammar


class CompileTurns:
    """Of one compiler. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[bytes, dict[Future[LLMatcher], Grammar]] = {}
        """By owner: whose turn is next first, and of each the oldest first. None is empty."""

    def put(self, grammar: Grammar, result: Future[LLMatcher]) -> None:
        """In the line of the grammar's owner, at the end of it where it is not there yet."""
        with self._lock:
            self._lines.setdefault(grammar.owner, {}).setdefault(result, grammar)

    def take(self) -> tuple[Grammar, Future[LLMatcher]] | None:
        """What is compiled next, which is nobody else's to compile; None: nothing waits."""
        with self._lock:
            while self._lines:
                owner = next(iter(self._lines))
                line = self._lines.pop(owner)
                while line:
                    result = next(iter(line))
                    grammar = line.pop(result)
                    if not result.done() and result.set_running_or_notify_cancel():
                        if line:
                            self._lines[owner] = line
                        return grammar, result
        return None

    def cancel_all(self) -> None:
        """Nobody compiles any more."""
        with self._lock:
            for line in self._lines.values():
                for result in line:
                    result.cancel()
            self._lines.clear()
