"""Stop strings over text that arrives in pieces.

A choice ends at the first character that completes a stop string; of several that end there the
longest counts, and the text before it is what the client sees. The rule is about characters, so
the pieces do not matter. All strings are matched at once by one automaton (Aho and Corasick,
"Efficient string matching", 1975): its state is the longest suffix of the text that could still
become a stop string, and that suffix is exactly what must be held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class StopAutomaton:
    """The immutable part, shared by all choices of a request."""

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops` are not empty strings; no stops is fine and matches nothing."""
        self._next: list[dict[str, int]] = [{}]
        self._fallback: list[int] = [0]
        self.depth: list[int] = [0]
        """Per state: characters that could still become a stop string."""
        self.match_chars: list[int] = [0]
        """Per state: length of the longest stop string that ends here, or 0."""
        for stop in stops:
            self._add(stop)
        self._link()
        self.first_chars = frozenset(self._next[0])

    def step(self, state: int, char: str) -> int:
        """The state after one more character."""
        while char not in self._next[state]:
            if state == 0:
                return 0
            state = self._fallback[state]
        return self._next[state][char]

    def _add(self, stop: str) -> None:
        state = 0
        for char in stop:
            if char not in self._next[state]:
                self._next[state][char] = len(self._next)
                self._next.append({})
                self._fallback.append(0)
                self.depth.append(self.depth[state] + 1)
                self.match_chars.append(0)
            state = self._next[state][char]
        self.match_chars[state] = len(stop)

    def _link(self) -> None:
        """Breadth first: the fallback of a state is the longest proper suffix that is a state."""
        waiting = deque(self._next[0].values())
        while waiting:
            state = waiting.popleft()
            for char, child in self._next[state].items():
                self._fallback[child] = self.step(self._fallback[state], char)
                waiting.append(child)
            if self.match_chars[state] == 0:
                self.match_chars[state] = self.match_chars[self._fallback[state]]


class StopMatcher:
    """One choice's place in the automaton. `matched` is set once and for all."""

    def __init__(self, automaton: StopAutomaton, *, includes_match: bool = False) -> None:
        self._automaton = automaton
        self._includes_match = includes_match
        self._state = 0
        self._held = ""
        self.matched = False

    def feed(self, text: str) -> str:
        """The text that may be shown now. Not to be called after `matched`."""
        automaton = self._automaton
        if self._state == 0 and automaton.first_chars.isdisjoint(text):
            return text
        for index, char in enumerate(text):
            self._state = automaton.step(self._state, char)
            length = automaton.match_chars[self._state]
            if length:
                return self._stop_at(self._held + text[: index + 1], length)
        whole = self._held + text
        shown = len(whole) - automaton.depth[self._state]
        self._held = whole[shown:]
        return whole[:shown]

    def flush(self) -> str:
        """What was held back, when the choice ends without a stop string."""
        held, self._held, self._state = self._held, "", 0
        return held

    def _stop_at(self, whole: str, length: int) -> str:
        self.matched = True
        self._held = ""
        return whole if self._includes_match else whole[: len(whole) - length]
