"""Label and field selectors, in the words of a query and in those of an object's spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from tests.mini_cluster.history import Matches, Object
from tests.mini_cluster.refusals import bad_request

Labels = dict[str, str]
_Test = Callable[[Labels], bool]
_ABSENT = "\0"
_SET = re.compile(r"\s*(!?[\w./-]+)\s+(in|notin)\s+\(([^)]*)\)\s*")


def matching(label_selector: str, field_selector: str) -> Matches:
    """Objects that both let through; "" lets all. Refusal 400 for what is no selector."""
    labels = [_label_test(term) for term in _terms(label_selector)]
    fields = [_field_test(term) for term in _terms(field_selector)]

    def matches(found: Object) -> bool:
        own = found["metadata"].get("labels") or {}
        return all(test(own) for test in labels) and all(test(found) for test in fields)

    return matches


def selects(selector: Object | None, labels: Labels | None) -> bool:
    """A spec's `selector`, with matchLabels and matchExpressions. None selects nothing."""
    if selector is None:
        return False
    own = labels or {}
    wanted = selector.get("matchLabels") or {}
    return all(own.get(key) == value for key, value in wanted.items()) and all(
        _holds(term["key"], term["operator"], term.get("values") or (), own)
        for term in selector.get("matchExpressions") or ()
    )


def _holds(key: str, operator: str, values: Collection[str], labels: Labels) -> bool:
    match operator:
        case "In":
            return labels.get(key, _ABSENT) in values
        case "NotIn":
            return labels.get(key, _ABSENT) not in values
        case "Exists":
            return key in labels
    return key not in labels


def _terms(selector: str) -> list[str]:
    """Between commas, but for those in brackets."""
    return [term.strip() for term in re.split(r",(?![^(]*\))", selector) if term.strip()]


def _label_test(term: str) -> _Test:
    if found := _SET.fullmatch(term):
        values = [value.strip() for value in found[3].split(",")]
        operator = "In" if found[2] == "in" else "NotIn"
        return lambda labels: _holds(found[1], operator, values, labels)
    key, sign, value = _divided(term)
    if not sign:
        operator = "DoesNotExist" if key.startswith("!") else "Exists"
        return lambda labels: _holds(key.lstrip("!"), operator, (), labels)
    return lambda labels: (labels.get(key) == value) == (sign != "!=")


def _field_test(term: str) -> Matches:
    path, sign, value = _divided(term)
    if not sign:
        raise bad_request(f"invalid field selector {term!r}: it has neither = nor !=")
    return lambda found: (_field(found, path) == value) == (sign != "!=")


def _divided(term: str) -> tuple[str, str, str]:
    """Key, sign, value; "" for both where the key is all there is."""
    for sign in ("!=", "==", "="):
        key, found, value = term.partition(sign)
        if found:
            return key.strip(), sign, value.strip()
    return term, "", ""


def _field(found: Any, path: str) -> str:
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return "" if found is None else str(found)
