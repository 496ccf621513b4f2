"""In what two templates of pods differ, for whoever is to agree to one of them. Pure.

Values of variables that are called secrets are redacted: most are in Secrets, some are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.redaction import Redactor
from cluster.scaling.groups import Object

MAX_CHANGES = 20
MAX_CHARS = 120
"""Of a value."""
_ABSENT = object()


def template_changes(now: Object, then: Object) -> tuple[str, ...]:
    """Such as "containers.worker.image: worker:2 -> worker:1", of their specs and annotations; the
    first of them, and how many more there are."""
    redactor = Redactor()
    both = _told_of(now), _told_of(then)
    found = list(_changes("", both, (redactor.data(both[0]), redactor.data(both[1]))))
    left = len(found) - MAX_CHANGES
    return (*found[:MAX_CHANGES], *([f"and {left} more"] if left > 0 else ()))


def _told_of(template: Object) -> dict[str, Any]:
    annotations = (template.get("metadata") or {}).get("annotations")
    return {**(template.get("spec") or {}), **({"annotations": annotations} if annotations else {})}


def _changes(path: str, raw: tuple[Any, Any], shown: tuple[Any, Any]) -> Iterator[str]:
    """`shown`: the same without secrets."""
    if raw[0] == raw[1]:
        return
    parts = _parts(raw[0]), _parts(raw[1])
    if parts[0] is None or parts[1] is None:
        yield f"{path or 'all'}: {_words(shown[0])} -> {_words(shown[1])}"
        return
    shown_parts = _parts(shown[0]) or {}, _parts(shown[1]) or {}
    for key in {**parts[0], **parts[1]}:
        yield from _changes(
            f"{path}.{key}" if path else str(key),
            (parts[0].get(key, _ABSENT), parts[1].get(key, _ABSENT)),
            (shown_parts[0].get(key, _ABSENT), shown_parts[1].get(key, _ABSENT)),
        )


def _parts(value: Any) -> Mapping[str, Any] | None:
    """What it consists of, by key, name or place; None: it is one thing."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list):
        return None
    names = [each.get("name") if isinstance(each, Mapping) else None for each in value]
    if all(names) and len(set(names)) == len(names):
        return dict(zip(map(str, names), value, strict=True))
    return {str(index): each for index, each in enumerate(value)}


def _words(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = str(value)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."
