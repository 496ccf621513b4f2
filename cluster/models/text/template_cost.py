"""How far a chat template can go, known from its text alone: for those that just write chats down.

Most templates go over the messages once and put each between markers. Such a one takes so many
steps, each over so much text, whatever its author meant. The walk below proves it, and knows
nothing of all others: other loops, calls, macros. Values are followed by size, in pieces: a
variable that is set to `x + x` has twice as many as x. What a loop's body sets is forgotten by the
next round (jinja's scopes), so a body is walked once.

A chat here has messages of a role and a content, no tools, no documents and no variables of the
client: a loop over any other part of a message does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jinja2 import nodes

MAX_STEPS = 2000
"""Of one rendering: SmolLM2's template takes 44 for a message, in 10 us (2-core machine)."""
MAX_TEXT_CHARS = 8 << 20
"""Copied or compared by all steps together, at the very most: 0.8 ms."""
MAX_SOURCE_CHARS = 16_384
MAX_SOUGHT_CHARS = 64
MAX_INTEGER = 1 << 31
_NEVER_GIVEN = frozenset({"tools", "documents"})
_MESSAGE_PARTS = frozenset({"role", "content"})
_FILTERS = frozenset({"trim", "length", "count"})
_METHODS = frozenset({"strip", "lstrip", "rstrip", "startswith", "endswith"})
_TESTS = frozenset({"defined", "undefined", "none", "string", "mapping", "true", "false"})
_ONE_OF_ITS_PARTS = (
    nodes.And,
    nodes.Compare,
    nodes.CondExpr,
    nodes.Getattr,
    nodes.Getitem,
    nodes.Neg,
    nodes.Not,
    nodes.Operand,
    nodes.Or,
    nodes.Slice,
    nodes.Sub,
)
_ALL_OF_ITS_PARTS = (nodes.Add, nodes.Concat, nodes.List, nodes.Tuple)


class _Unbounded(Exception):
    """Nothing is known of this template."""


@dataclass(frozen=True, slots=True)
class TemplateCost:
    """An upper bound."""

    once_steps: int
    message_steps: int
    """For each message."""
    longest_chars: int
    """Of the texts that are part of the template."""

    def is_short(self, num_messages: int, num_chars: int) -> bool:
        """True when messages of so many characters are written down in a millisecond or two."""
        steps = self.once_steps + self.message_steps * num_messages
        return steps <= MAX_STEPS and steps * (num_chars + self.longest_chars) <= MAX_TEXT_CHARS


def cost_of(source: str, parsed: nodes.Template) -> TemplateCost | None:
    """None: no bound is known."""
    if len(source) > MAX_SOURCE_CHARS:
        return None
    walk = _Walk(parsed)
    try:
        once_steps = walk.statements(parsed.body, _Scope({}))
    except (_Unbounded, RecursionError):
        return None
    return TemplateCost(once_steps, walk.message_steps, len(source))


@dataclass(slots=True)
class _Scope:
    sizes: dict[str, int]
    """In pieces, of what was set: a piece is no longer than the chat and the template."""
    in_loop: bool = False
    message: str | None = None
    """The name of the loop's message, where it surely is one."""


class _Walk:
    """Counts steps: one for each node, and one for each piece that a node makes or looks at."""

    def __init__(self, parsed: nodes.Template) -> None:
        self.message_steps = 0
        assigns = list(parsed.find_all(nodes.Assign))
        self._assigned = {name for node in assigns for name in _names(node.target)}
        loops = parsed.find_all(nodes.For)
        self._looped = {name for node in loops for name in _names(node.target)}
        self._lists = ({"messages"} | self._assigned) - self._looped
        """Names that mean the messages, or a part of their list, whenever they mean something."""
        while wrong := [node for node in assigns if self._breaks_a_list(node)]:
            self._lists -= {name for node in wrong for name in _names(node.target)}

    def statements(self, body: Iterable[nodes.Node], scope: _Scope) -> int:
        """Steps of all, in this order. Raises _Unbounded."""
        return sum(self._statement(node, scope) for node in body)

    def _statement(self, node: nodes.Node, scope: _Scope) -> int:
        match node:
            case nodes.Output():
                return sum(self._expression(part, scope)[0] for part in node.nodes)
            case nodes.If():
                return self._if(node, scope)
            case nodes.For(target=nodes.Name(name=name), recursive=False):
                return self._for(node, name, scope)
            case nodes.Assign(target=nodes.Name(name=name)):
                steps, scope.sizes[name] = self._expression(node.node, scope)
                return steps + 1
            case nodes.Continue() | nodes.Break():
                return 1
        raise _Unbounded

    def _if(self, node: nodes.If, scope: _Scope) -> int:
        """Every branch that could be taken; of each name the largest that one of them leaves."""
        steps, ends = 1, list[dict[str, int]]()
        tested = [branch for branch in (node, *node.elif_) if not self._is_false(branch.test)]
        for branch in tested:
            steps += self._expression(branch.test, scope)[0]
        for body in (*(branch.body for branch in tested), node.else_):
            inner = _Scope(dict(scope.sizes), scope.in_loop, scope.message)
            steps += self.statements(body, inner)
            ends.append(inner.sizes)
        for name in set().union(*ends):
            scope.sizes[name] = max(end.get(name, 1) for end in ends)
        return steps

    def _for(self, node: nodes.For, name: str, scope: _Scope) -> int:
        steps = self._expression(node.iter, scope)[0] + 1
        if not self._is_empty(node.iter, scope):
            if scope.in_loop or not self._is_list(node.iter):
                raise _Unbounded
            message = None if name in self._assigned else name
            body = _Scope(dict(scope.sizes), in_loop=True, message=message)
            if node.test is not None:
                self.message_steps += self._expression(node.test, body)[0]
            self.message_steps += self.statements(node.body, body) + 1
        return steps + self.statements(node.else_, _Scope(dict(scope.sizes), scope.in_loop))

    def _expression(self, node: nodes.Node, scope: _Scope) -> tuple[int, int]:
        """(steps, size). Raises _Unbounded."""
        if isinstance(node, nodes.Name):
            size = scope.sizes.get(node.name, 1)
            return size, size
        self._check(node)
        walked = [self._expression(part, scope) for part in node.iter_child_nodes()]
        sizes = [size for _, size in walked] or [1]
        size = sum(sizes) if isinstance(node, _ALL_OF_ITS_PARTS) else max(sizes)
        if size > MAX_STEPS:
            raise _Unbounded
        return sum(steps for steps, _ in walked) + size, size

    def _check(self, node: nodes.Node) -> None:
        """Raises _Unbounded for whatever may do more than look at its parts, or join them."""
        match node:
            case nodes.TemplateData():
                return
            case nodes.Const():
                is_fine = node.value is None or isinstance(node.value, str | bool)
                is_fine |= isinstance(node.value, int) and abs(node.value) < MAX_INTEGER
            case nodes.Compare(ops=ops):
                is_fine = all(_seeks_little(node.expr, operand) for operand in ops)
            case nodes.Mod(left=nodes.Getattr(node=nodes.Name(name="loop")), right=nodes.Const()):
                return
            case nodes.Filter() | nodes.Test() | nodes.Call():
                is_fine = self._is_plain(node)
            case _:
                is_fine = isinstance(node, (*_ONE_OF_ITS_PARTS, *_ALL_OF_ITS_PARTS))
        if not is_fine:
            raise _Unbounded

    def _is_plain(self, node: nodes.Filter | nodes.Test | nodes.Call) -> bool:
        if node.kwargs or node.dyn_args is not None or node.dyn_kwargs is not None:
            return False
        match node:
            case nodes.Filter():
                is_known = node.name in _FILTERS and node.node is not None
            case nodes.Test():
                is_known = node.name in _TESTS
            case nodes.Call(node=nodes.Name(name=name)):
                return name == "raise_exception" and name not in self._assigned | self._looped
            case _:
                is_known = isinstance(node.node, nodes.Getattr) and node.node.attr in _METHODS
        return is_known and all(_is_short(argument) for argument in node.args)

    def _is_empty(self, iterated: nodes.Node, scope: _Scope) -> bool:
        """No message has such a part; or it is a list that is never given."""
        match iterated:
            case nodes.Getattr(node=nodes.Name(name=name), attr=part):
                pass
            case nodes.Getitem(node=nodes.Name(name=name), arg=nodes.Const(value=str() as part)):
                pass
            case _:
                return self._is_false(iterated)
        return name == scope.message and part not in _MESSAGE_PARTS

    def _is_false(self, test: nodes.Node) -> bool:
        """Surely, and at once."""
        match test:
            case nodes.Name(name=name):
                return name in _NEVER_GIVEN - self._assigned - self._looped
            case nodes.And(left=left):
                return self._is_false(left)
            case nodes.Not(node=nodes.Test(name="none", node=nodes.Name() as name)):
                return self._is_false(name)
        return False

    def _breaks_a_list(self, assign: nodes.Assign) -> bool:
        return not self._lists.isdisjoint(_names(assign.target)) and not self._is_list(assign.node)

    def _is_list(self, node: nodes.Node) -> bool:
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            node = node.node
        return isinstance(node, nodes.Name) and node.name in self._lists


def _names(target: nodes.Node) -> list[str]:
    found = [target, *target.find_all(nodes.Name)]
    return [node.name for node in found if isinstance(node, nodes.Name)]


def _seeks_little(sought: nodes.Expr, operand: nodes.Operand) -> bool:
    """`in` looks for a few characters, or among a few values."""
    if operand.op not in ("in", "notin"):
        return True
    return _is_short(sought) or isinstance(operand.expr, nodes.List | nodes.Tuple)


def _is_short(node: nodes.Node) -> bool:
    if not isinstance(node, nodes.Const):
        return False
    return not isinstance(node.value, str) or len(node.value) <= MAX_SOUGHT_CHARS
