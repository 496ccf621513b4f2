"""Chat templates at random, and contents that make the most of a mistake."""

from __future__ import annotations

import random

HOSTILE = ("a b", "\\", "'\"", "\U000e0001", "\u2003", "\0\n", "%99d{}", "{{ messages }}")


class Author:
    """Writes templates at random: loops, branches, names that are set again and again. A wild one
    uses whatever comes to its mind, a tame one mostly texts."""

    NAMES = ("m", "x", "y", "messages", "tools", "loop")
    PARTS = ("role", "content", "tool_calls", "previtem", "items")
    WILD = ("[{0}, {1}]", "[{0}]", "({0}, {1})", "{{'a': {0}}}", "{0} == {1}", "{0} % 9", "-({0})")
    TAME = ("({0} + {1})", "({0} ~ {1})", "({0})|trim", "({0}).strip()")

    CONDITIONS = ("{0} == {1}", "{0} in [{1}]", "not {0}", "{0} and {1}", "x is defined", "tools")

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._wildness = self._random.choice((0.0, 0.02, 0.3))

    def template(self) -> str:
        body = "".join(self._statement(3, "x") for _ in range(self._random.randrange(1, 5)))
        return "{% set x = '\\\\' %}{% set y = messages[0].content %}" + body

    @property
    def _is_wild(self) -> bool:
        return self._random.random() < self._wildness

    def _statement(self, depth: int, text: str) -> str:
        name = self._random.choice(self.NAMES[:5] if self._is_wild else ("x", "y"))
        in_loop = text != "x" and not self._is_wild
        match self._random.randrange(3 if not depth else 4 if in_loop else 6):
            case 0:
                return "{{ " + self._expression(4, text) + " }}"
            case 1 | 2:
                return "{% set " + name + " = " + self._expression(4, text) + " %}"
            case 3:
                body = self._statement(depth - 1, text) + self._statement(depth - 1, text)
                other = "{% else %}" + self._statement(depth - 1, text)
                return "{% if " + self._condition(text) + " %}" + body + other + "{% endif %}"
        if self._is_wild:
            over = self._random.choice(("m.tool_calls", "x", self._atom(text), "tools"))
            return self._loop(name, over, depth, text)
        over = self._random.choice(("messages", "messages[1:]"))
        return self._loop("m", over, depth, "m.content")

    def _loop(self, name: str, over: str, depth: int, text: str) -> str:
        body = self._statement(depth - 1, text) + self._statement(depth - 1, text)
        return "{% for " + name + " in " + over + " %}" + body + "{% endfor %}"

    def _condition(self, text: str) -> str:
        left, right = self._expression(1, text), self._expression(1, text)
        shape = self._random.choice(self.CONDITIONS)
        return shape.format(left, right)

    def _expression(self, depth: int, text: str) -> str:
        if not depth or self._random.randrange(5) == 0:
            return self._atom(text)
        left, right = self._expression(depth - 1, text), self._expression(depth - 1, text)
        shape = self._random.choice(self.WILD if self._is_wild else self.TAME)
        return shape.format(left, right)

    def _atom(self, text: str) -> str:
        if not self._is_wild:
            return self._random.choice(("x", "y", "'ab'", "messages[0].role", text))
        name, part = self._random.choice(self.NAMES), self._random.choice(self.PARTS)
        return self._random.choice((name, f"{name}.{part}", f"{name}[0]", "messages[1:]", "range"))
