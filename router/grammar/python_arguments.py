"""Arguments as Python writes them: `city="Paris", days=2`. Each value is JSON, which Python and the
reader of such calls (router/tools/python_calls.py) take for the same, `true` and `null` among it.
"""

from __future__ import annotations

import keyword
import unicodedata

from router.grammar.in_order import OrderedTerm, in_order
from router.grammar.json_schema import checked_in_lark, json_in_lark
from router.grammar.lark_terms import quoted
from router.grammar.limits import refuse
from router.grammar.schema_budget import SchemaBudget
from router.grammar.separate_values import Property, properties_of

_BETWEEN = '", "'
_ANYTHING = f"((KEYWORD python_value) ({_BETWEEN} KEYWORD python_value)*)?"
_RESERVED = "|".join(keyword.kwlist)


def python_rules() -> list[str]:
    """For functions that take anything."""
    return [
        f"KEYWORD: /[A-Za-z_][A-Za-z0-9_]{{0,63}}=/ & ~/({_RESERVED})=/",
        f"python_value: {json_in_lark({}, param='tools')}",
    ]


def python_arguments(
    schema: dict[str, object], name: str, *, param: str, budget: SchemaBudget
) -> tuple[str, list[str]]:
    """Of a checked schema: an expression, "" for no arguments, and rules that it needs, whose
    names begin with `name`. `budget`: of all functions of the request. Raises InvalidRequest naming
    what cannot be written so."""
    where = "calls are written in Python"
    properties = properties_of(schema, param=param, where=where)
    if properties is None:
        return _ANYTHING, []
    parts = list[OrderedTerm]()
    for each in properties:
        parts.append(_part(each, param))
        budget.written_bytes.take(len(parts[-1].term), param)  # each has its definitions
    return in_order(parts, _BETWEEN, name)


def _part(each: Property, param: str) -> OrderedTerm:
    if not _is_written(each.name):
        refuse(
            f"{param}: {each.name[:80]!r} is no name of an argument in Python, as calls of this "
            "model are written; rename it",
            param,
        )
    value = checked_in_lark(each.by_itself, param=param)
    return OrderedTerm(f"({quoted(each.name + '=')} {value})", each.is_required)


def _is_written(name: str) -> bool:
    """It is read as itself: Python normalizes names."""
    is_plain = unicodedata.normalize("NFKC", name) == name
    return name.isidentifier() and is_plain and not keyword.iskeyword(name)
