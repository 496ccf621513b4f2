"""How far a chat template can go, known from its text alone: for those that just write chats down.

Most templates go over the messages once and put each between markers. What such a one is made of is
listed below, and everything else is unknown: it may go anywhere. What is written is surely a text
(a message's role or content, a text of the template, a special token, a variable that is set to
such): the size of anything else tells nothing of the text that it makes.

Texts are followed by size, in pieces: a variable that is set to `x + x` has twice as many as x.
What a loop's body sets is forgotten by the next round (jinja's scopes), so a body is walked once;
a size that was reached counts from there on.

A chat here has messages of a role and a content, both texts, no tools, no documents and no
variables of the client.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from jinja2 import nodes

from cluster.models.hf.special_tokens import NAMES as SPECIAL_NAMES
from cluster.models.text.template_sandbox import GLOBAL_NAMES

MAX_STEPS = 2000
"""Of one rendering: SmolLM2's template takes 38 for a message, in 7 us, and no template that was
written to be slow takes longer than 0.8 ms in all (2-core machine)."""
MAX_TEXT_CHARS = 2 << 20
"""Copied or compared by all steps together, at the very most: 8 MiB where one takes four bytes."""
STRIP_STEPS = 8
"""Looking whether a character is a space takes so many times as long as copying it."""
_PARTS = frozenset({"role", "content"})
_LOOP = frozenset({"first", "last", "index", "index0", "revindex", "revindex0", "length"})
_TESTS = frozenset({"defined", "undefined", "none", "string", "mapping", "true", "false"})


class _Unknown(Exception):
    """Nothing is known of this template."""


class _Kind(enum.Enum):
    """What a name means, wherever it means something. CHAT: the messages, or a part of them."""

    TEXT = enum.auto()
    FLAG = enum.auto()
    CHAT = enum.auto()
    MESSAGE = enum.auto()
    NEVER_GIVEN = enum.auto()
    OURS = enum.auto()


_OURS = {
    **dict.fromkeys(GLOBAL_NAMES | {"loop"}, _Kind.OURS),
    **dict.fromkeys(SPECIAL_NAMES, _Kind.TEXT),
    **dict.fromkeys(("tools", "documents"), _Kind.NEVER_GIVEN),
    "messages": _Kind.CHAT,
    "add_generation_prompt": _Kind.FLAG,
}


@dataclass(frozen=True, slots=True)
class TemplateCost:
    """An upper bound."""

    once_steps: int
    message_steps: int
    """For each message."""
    longest_chars: int
    """Of the template's own texts."""

    def is_short(self, num_messages: int, longest_chars: int) -> bool:
        """True when so many messages, and nothing longer in them, are written down in a millisecond
        or two."""
        steps = self.once_steps + self.message_steps * num_messages
        longest = max(longest_chars, self.longest_chars)
        return steps <= MAX_STEPS and steps * longest <= MAX_TEXT_CHARS


def cost_of(parsed: nodes.Template) -> TemplateCost | None:
    """None: no bound is known, or no chat is short."""
    walk = _Walk()
    try:
        walk.statements(parsed.body)
    except _Unknown:
        return None
    texts = [node.data for node in parsed.find_all(nodes.TemplateData)]
    texts += [node.value for node in parsed.find_all(nodes.Const) if isinstance(node.value, str)]
    once_steps, message_steps = walk.steps
    cost = TemplateCost(once_steps, message_steps, max(map(len, texts), default=0))
    return cost if cost.is_short(1, 1) else None


class _Walk:
    """Counts steps: one for each node, and one for each piece that a node makes or looks at."""

    def __init__(self) -> None:
        self.steps = [0, 0]
        """Once; for each message."""
        self._in_loop = False
        self._kinds = dict(_OURS)
        self._sizes: dict[str, int] = {}

    def statements(self, body: Iterable[nodes.Node]) -> None:
        """In this order. Raises _Unknown."""
        for node in body:
            self._count(1)
            match node:
                case nodes.Output():
                    for part in node.nodes:
                        self._text(part)
                case nodes.Assign(target=nodes.Name(name=name)):
                    self._mean(name, self._assigned(name, node.node))
                case nodes.If():
                    self._if(node)
                case nodes.For(target=nodes.Name(name=name), test=None, recursive=False):
                    self._for(node, name)
                case _:
                    raise _Unknown

    def _assigned(self, name: str, value: nodes.Node) -> _Kind:
        if isinstance(value, nodes.Const) and isinstance(value.value, bool):
            return _Kind.FLAG
        if self._is_chat(value):
            self.steps[True] += 1  # a slice is a copy
            return _Kind.CHAT
        self._sizes[name] = max(self._text(value), self._sizes.get(name, 1))
        return _Kind.TEXT

    def _if(self, node: nodes.If) -> None:
        """Every branch that could be taken, as if all were."""
        for branch in (node, *node.elif_):
            self._look(branch.test)
            if not self._is_never(branch.test):
                self.statements(branch.body)
        self.statements(node.else_)

    def _for(self, node: nodes.For, name: str) -> None:
        if not self._is_nothing(node.iter):
            if self._in_loop or not self._is_chat(node.iter):
                raise _Unknown
            self._mean(name, _Kind.MESSAGE)
            self._in_loop = True
            self._count(2)
            self.statements(node.body)
            self._in_loop = False
        self.statements(node.else_)

    def _mean(self, name: str, kind: _Kind) -> None:
        if self._kinds.setdefault(name, kind) is not kind:
            raise _Unknown

    def _text(self, node: nodes.Node) -> int:
        """The size of what is surely a text. Raises _Unknown."""
        match node:
            case nodes.TemplateData() | nodes.Const(value=str()):
                size = 1
            case nodes.Name(name=name) if self._kinds.get(name) is _Kind.TEXT:
                size = self._sizes.get(name, 1)
            case nodes.Add(left=left, right=right):
                size = self._text(left) + self._text(right)
            case nodes.Concat(nodes=parts):
                size = sum(map(self._text, parts))
            case (
                nodes.Filter(node=nodes.Expr() as text, name="trim")
                | nodes.Call(node=nodes.Getattr(node=text, attr="strip" | "lstrip" | "rstrip"))
            ) if _has_args(node, 0):
                size = self._text(text)
                self._count(STRIP_STEPS * size)
            case nodes.Call(node=nodes.Name(name="raise_exception")) if _has_args(node, 1):
                size = self._text(node.args[0])  # and never more: it ends the rendering
            case _ if self._part_of(node) in _PARTS:
                size = 1
            case _:
                raise _Unknown
        self._count(size)
        return size

    def _look(self, node: nodes.Node) -> None:
        """A condition. Raises _Unknown for what may do more than look at what is there."""
        self._count(1)
        match node:
            case nodes.Const() | nodes.Name():
                pass
            case nodes.Not(node=inner):
                self._look(inner)
            case nodes.And(left=left, right=right) | nodes.Or(left=left, right=right):
                self._look(left)
                if isinstance(node, nodes.Or) or not self._is_never(left):
                    self._look(right)
            case nodes.Test(name=name, node=inner) if name in _TESTS and _has_args(node, 0):
                self._look(inner)
            case nodes.Getattr(node=nodes.Name(name="loop"), attr=attr) if attr in _LOOP:
                pass
            case nodes.Mod(left=nodes.Getattr(node=nodes.Name(name="loop")), right=nodes.Const()):
                self._look(node.left)
            case nodes.Compare(expr=left, ops=[operand]):
                self._compare(left, operand.op, operand.expr)
            case _ if self._part_of(node) is None:
                self._text(node)

    def _compare(self, left: nodes.Expr, operator: str, right: nodes.Expr) -> None:
        if operator in ("eq", "ne"):
            for side in (left, right):  # neither is a list
                if isinstance(side, nodes.Name | nodes.And | nodes.Or):
                    self._text(side)
                else:
                    self._look(side)
        elif operator in ("in", "notin") and isinstance(right, nodes.List | nodes.Tuple):
            self._count(self._text(left) * sum(map(self._text, right.items)))
        else:
            raise _Unknown

    def _is_chat(self, node: nodes.Node) -> bool:
        """The messages or, but in a loop, a slice of them."""
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            ends = (node.arg.start, node.arg.stop, node.arg.step)
            if self._in_loop or not all(end is None or _is_index(end) for end in ends):
                return False
            node = node.node
        return isinstance(node, nodes.Name) and self._kinds.get(node.name) is _Kind.CHAT

    def _is_message(self, node: nodes.Node) -> bool:
        if isinstance(node, nodes.Getitem) and _is_index(node.arg):
            self._count(1)
            return isinstance(node.node, nodes.Name) and self._is_chat(node.node)
        return isinstance(node, nodes.Name) and self._kinds.get(node.name) is _Kind.MESSAGE

    def _part_of(self, node: nodes.Node) -> str | None:
        """The name of a message's part; None for what is none."""
        match node:
            case (
                nodes.Getattr(node=message, attr=str() as part)
                | nodes.Getitem(node=message, arg=nodes.Const(value=str() as part))
            ) if self._is_message(message):
                return part
        return None

    def _is_nothing(self, node: nodes.Node) -> bool:
        """What is never given, or a part that no message has (nor any dict)."""
        if isinstance(node, nodes.Name):
            return self._kinds.get(node.name) is _Kind.NEVER_GIVEN
        part = self._part_of(node)
        return part is not None and part not in _PARTS and not hasattr(dict, part)

    def _is_never(self, test: nodes.Node) -> bool:
        """Surely false."""
        if isinstance(test, nodes.And):
            return self._is_never(test.left) or self._is_never(test.right)
        return self._is_nothing(test)

    def _count(self, steps: int) -> None:
        self.steps[self._in_loop] += steps


def _has_args(node: nodes.Filter | nodes.Test | nodes.Call, count: int) -> bool:
    """And no others."""
    return len(node.args) == count and not (node.kwargs or node.dyn_args or node.dyn_kwargs)


def _is_index(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Neg):
        node = node.node
    return isinstance(node, nodes.Const) and isinstance(node.value, int)
