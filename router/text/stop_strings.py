"""Stop strings over text that arrives in pieces.

A choice ends at the first character that completes a stop string; of several that end there the
longest counts, and the text before it is what the client sees. The rule is about characters, so
the pieces do not matter. All strings are matched at once by one automaton (Aho and Corasick,
"Efficient string matching", 1975): its state is the longest suffix of the text that could still
become a stop string, and that suffix is exactly what must be held back.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

_STATES = 1 << 32
"""More than there can be: a transition's key is one number, `ord(char) * _STATES + state`."""


class StopStrings:
    """A body's stop strings: its prompts and choices share one automaton, made when the first
    text comes, so that a body which is refused or waits costs nothing."""

    __slots__ = ("_automaton", "strings")

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.strings = tuple(stops)
        self._automaton: StopAutomaton | None = None

    @property
    def automaton(self) -> StopAutomaton:
        """The same each time."""
        if self._automaton is None:
            self._automaton = StopAutomaton(self.strings) if self.strings else _NO_STOPS
        return self._automaton


class StopAutomaton:
    """The immutable part. 1024 characters are 1 ms to make, and some 150 kB."""

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops` are not empty strings; no stops is fine and matches nothing."""
        self._next: dict[int, int] = {}
        self._fallback = array("I", [0])
        self.depth = array("I", [0])
        """Per state: characters that could still become a stop string."""
        self.match_chars = array("I", [0])
        """Per state: length of the longest stop string that ends here, or 0."""
        for stop in stops:
            self._add(stop)
        self._link()
        self.first_chars = frozenset(stop[0] for stop in stops)

    def step(self, state: int, char: str) -> int:
        """The state after one more character."""
        key = ord(char) * _STATES
        while (found := self._next.get(key + state)) is None:
            if state == 0:
                return 0
            state = self._fallback[state]
        return found

    def _add(self, stop: str) -> None:
        state = 0
        for char in stop:
            key = ord(char) * _STATES + state
            if (child := self._next.get(key)) is None:
                child = self._next[key] = len(self.depth)
                self._fallback.append(0)
                self.depth.append(self.depth[state] + 1)
                self.match_chars.append(0)
            state = child
        self.match_chars[state] = len(stop)

    def _link(self) -> None:
        """By depth: the fallback of a state is the longest proper suffix that is a state."""
        edges = sorted(self._next.items(), key=lambda edge: self.depth[edge[1]])
        for key, child in edges:
            code, parent = divmod(key, _STATES)
            if parent:
                self._fallback[child] = self.step(self._fallback[parent], chr(code))
            if self.match_chars[child] == 0:
                self.match_chars[child] = self.match_chars[self._fallback[child]]


_NO_STOPS = StopAutomaton(())


class StopMatcher:
    """One choice's place in the automaton. `matched` is set once and for all."""

    def __init__(self, automaton: StopAutomaton, *, includes_match: bool = False) -> None:
        self._automaton = automaton
        self._includes_match = includes_match
        self._state = 0
        self._held = ""
        self.matched = False
        self.match: str | None = None
        """The stop string, once it has come."""

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
        self.match = whole[len(whole) - length :]
        self._held = ""
        return whole if self._includes_match else whole[: len(whole) - length]
