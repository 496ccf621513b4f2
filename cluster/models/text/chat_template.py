"""A conversation as the text that the model was trained on: the checkpoint's own jinja template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import TemplateError

from cluster.errors import BadCheckpoint, InvalidRequest
from cluster.models.text.template_budget import template_budget, template_units
from cluster.models.text.template_cost import cost_of
from cluster.models.text.template_sandbox import TemplateEnvironment

MAX_TEMPLATE_CHARS = 1 << 16
"""The longest that are known have 20,000."""
MAX_NESTING = 128
"""Of nodes in the parsed template: each term of a sum and each bracket is one."""
MAX_CHARS = 8 << 20
_PLAIN = {"role", "content"}


class JinjaChatTemplate:
    """Compiled once, and nothing worked out while it is; `render` may be called from any thread."""

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], *, where: str = "chat template"
    ) -> None:
        """Raises BadCheckpoint for a template that does not compile. `takes` are all names
        that stand in it: what is not among them changes nothing."""
        if len(source) > MAX_TEMPLATE_CHARS:
            raise BadCheckpoint(
                f"{where}: the chat template has {len(source):,} characters; allowed: "
                f"{MAX_TEMPLATE_CHARS:,}"
            )
        environment = TemplateEnvironment()
        try:
            parsed = environment.parse(source)
            _check_nesting(parsed)
            self._cost = cost_of(parsed)
            self.takes = frozenset(node.name for node in parsed.find_all(nodes.Name))
            self._template = environment.from_string(parsed)
        except (TemplateError, RecursionError, SyntaxError, ValueError, MemoryError) as error:
            raise BadCheckpoint(f"{where}: the chat template does not compile: {error}") from error
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._longest_special = max(map(len, special_tokens.values()), default=0)

    def is_short(self, messages: Sequence[tuple[str, str]]) -> bool:
        """True when these, as (role, content) and with nothing beside them, are surely rendered in
        a millisecond or two; False: nobody knows."""
        if self._cost is None:
            return False
        longest = max((len(part) for pair in messages for part in pair), default=0)
        return self._cost.is_short(len(messages), max(longest, self._longest_special))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt. Messages are {"role", "content"} of plain JSON values, and so are
        `variables`: what a client says beside them. They change nothing of ours.

        Raises InvalidRequest when the template refuses them, or would run or write without end.
        """
        values = {
            **(variables or {}),
            **self._special_tokens,
            "messages": [dict(message) for message in messages],
            "tools": None if tools is None else list(tools),
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            with self._budget_for(messages, is_plain=tools is None and not variables):
                return self._collect(values)
        except InvalidRequest:
            raise
        except Exception as error:  # a template can raise whatever its expressions raise
            raise InvalidRequest(
                f"the model's chat template cannot render these messages: {str(error)[:500]}; "
                "check their roles and order",
                param="messages",
            ) from error

    def _budget_for(
        self, messages: Sequence[Mapping[str, Any]], *, is_plain: bool
    ) -> AbstractContextManager[None]:
        """Of units alone where the end is known: seeing every line takes twice as long as running
        them."""
        if is_plain and all(message.keys() == _PLAIN for message in messages):
            pairs = [(message["role"], message["content"]) for message in messages]
            if all(isinstance(part, str) for pair in pairs for part in pair):
                return template_units() if self.is_short(pairs) else template_budget()
        return template_budget()

    def _collect(self, values: Mapping[str, Any]) -> str:
        pieces: list[str] = []
        num_chars = 0
        for piece in self._template.generate(values):
            pieces.append(piece)
            num_chars += len(piece)
            if num_chars > MAX_CHARS:
                raise InvalidRequest(
                    f"the rendered chat has over {MAX_CHARS:,} characters; shorten the messages",
                    param="messages",
                )
        return "".join(pieces)


def _check_nesting(parsed: nodes.Template) -> None:
    """Before it is compiled. Raises TemplateError."""
    level: list[nodes.Node] = [parsed]
    depth = 0
    while level:
        depth += 1
        level = [child for node in level for child in node.iter_child_nodes()]
    if depth > MAX_NESTING:
        raise TemplateError(f"it is nested {depth} deep; allowed: {MAX_NESTING}")
