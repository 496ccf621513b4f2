"""A jinja environment for templates that nobody vouches for: they come with a checkpoint.

jinja's immutable sandbox keeps a template away from Python. It does not keep it from taking all
memory or time, so here also every operation that can multiply its input asks the rendering's budget
first (`*`, `**`, `+`, `~`, range, replace, join, a list that is written as a text), and the rest of
that kind is left out (center, ljust, str.format, wide % formats...).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from cluster.models.text.template_budget import ITEM_UNITS, spend
from cluster.models.text.template_writing import ask_to_write, text_of, writing_its_value

MAX_INTEGER_BITS = 4096
MAX_INDENT = 64
_FILTER_NAMES = """
    abs attr capitalize count d default dictsort e escape first float groupby indent int items join
    last length list lower map max min reject rejectattr replace reverse round safe select
    selectattr sort string sum title tojson trim truncate unique upper wordcount
"""
_TEXT_FILTER_NAMES = "capitalize e escape lower safe string title trim upper wordcount"
_TEXT_METHOD_NAMES = """
    capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit
    isidentifier islower isnumeric isprintable isspace istitle isupper join lower lstrip partition
    removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines
    startswith strip swapcase title upper
"""
GLOBAL_NAMES = frozenset({"dict", "namespace", "raise_exception", "range", "strftime_now"})
"""What every template is given, and no client may replace."""
_TEXT_METHODS = frozenset(_TEXT_METHOD_NAMES.split())
_WIDE_FORMAT = re.compile(r"\*|\d{3,}")


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """As transformers sets it up (trim_blocks, lstrip_blocks, loopcontrols), with limits."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        extensions = ["jinja2.ext.loopcontrols", GenerationTag]
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=extensions,
            optimized=False,
            finalize=text_of,
        )
        self.code_generator_class = _LateCode
        self.filters = {name: self.filters[name] for name in _FILTER_NAMES.split()}
        for name in _TEXT_FILTER_NAMES.split():
            self.filters[name] = writing_its_value(self.filters[name])
        self.filters.update(tojson=_tojson, replace=_replace, join=self._join, indent=_indent)
        self.globals = {name: self.globals[name] for name in ("dict", "namespace")}
        self.globals.update(
            range=_range, raise_exception=_raise_exception, strftime_now=_strftime_now
        )

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr not in _TEXT_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """No str.format: leave it to is_safe_attribute, which refuses it."""
        return

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _ask_for_binop(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            _ask_for_method(owner, obj.__name__, args)
        return super().call(context, obj, *args, **kwargs)

    def join_texts(self, parts: Iterable[Any]) -> str:
        """The `~` operator."""
        texts = [text_of(part) for part in parts]
        spend(sum(map(len, texts)))
        return "".join(texts)

    def _join(self, value: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
        if attribute is not None:
            value = [self.getitem(item, attribute) for item in value]
        texts, between = [text_of(item) for item in value], text_of(d)
        spend(sum(map(len, texts)) + len(between) * len(texts))
        return between.join(texts)


class GenerationTag(Extension):
    """`{% generation %}` marks what an assistant wrote, for training; rendered as it stands."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _LateCode(CodeGenerator):
    """Leaves every expression to the rendering, which has a budget: jinja would work out the
    constant ones while it compiles. Compiles `~` to a call that asks first."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData | nodes.Const):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def visit_EvalContextModifier(self, node: nodes.EvalContextModifier, frame: Frame) -> None:
        self.fail(
            "autoescape is not supported: its value is worked out by the compiler", node.lineno
        )

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.join_texts((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


def _ask_for_binop(operator: str, left: Any, right: Any) -> None:
    if operator == "%" and isinstance(left, str):
        if _WIDE_FORMAT.search(left):
            raise SecurityError("formats with a width of three digits or * are not allowed")
        asked = ask_to_write(right)
        spend(len(left) + (asked * left.count("%") if isinstance(right, dict) else 0))
    elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
        spend(_units(left) + _units(right))
    elif operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
        _ask_for_integer(operator, left, right)
    elif operator == "*":
        for one, other in ((left, right), (right, left)):
            if hasattr(one, "__len__") and isinstance(other, int):
                spend(_units(one) * max(other, 0))


def _ask_for_integer(operator: str, left: int, right: int) -> None:
    grown = left.bit_length() * abs(right)
    bits = grown if operator == "**" else left.bit_length() + right.bit_length()
    if bits > MAX_INTEGER_BITS:
        raise SecurityError(f"it makes an integer of {bits:,} bits; allowed: {MAX_INTEGER_BITS}")


def _ask_for_method(text: str, name: str, args: tuple[Any, ...]) -> None:
    units = len(text)
    if name == "replace" and len(args) >= 2:
        units += text.count(text_of(args[0])) * len(text_of(args[1]))
    elif name in ("split", "rsplit", "splitlines"):
        units *= ITEM_UNITS // 4
    elif name == "join" and args and hasattr(args[0], "__len__"):
        units = sum(len(text_of(item)) for item in args[0]) + len(text) * len(args[0])
    spend(units)


def _units(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(value) * ITEM_UNITS


def _range(*args: int) -> range:
    numbers = range(*args)
    spend(len(numbers) * ITEM_UNITS)
    return numbers


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: jinja's own escapes HTML."""
    ask_to_write(value)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=None if indent is None else min(indent, MAX_INDENT),
        separators=separators,
        sort_keys=sort_keys,
    )


def _replace(value: Any, old: str, new: str, count: int = -1) -> str:
    text = text_of(value)
    _ask_for_method(text, "replace", (old, new))
    return text.replace(old, new, count)


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    margin = width if isinstance(width, str) else " " * min(width, MAX_INDENT)
    text = text_of(value)
    spend(len(text) + len(margin) * (text.count("\n") + 1))
    head, *lines = text.split("\n")
    shifted = [margin + line if line or blank else line for line in lines]
    return "\n".join([margin + head if first else head, *shifted])


def _raise_exception(message: Any) -> None:
    raise TemplateError(text_of(message))


def _strftime_now(format: str) -> str:
    if _WIDE_FORMAT.search(format):
        raise SecurityError("date formats with a width are not allowed")
    return datetime.now().strftime(format)
