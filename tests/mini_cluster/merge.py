"""Patches that are not server-side apply: JSON merge, strategic merge, and JSON patch."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.mini_cluster.history import Object
from tests.mini_cluster.refusals import unprocessable
from tests.mini_cluster.schemas import Node

_DELETED_ITEMS = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_KEPT = "$retainKeys"
_VERB = "$patch"


def json_merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = json_merge(made.get(key), value)
    return made


def strategic_merge(target: Any, patch: Object, node: Node) -> Any:
    """Lists merge by the keys that the schema names; `$patch` and its like are directives."""
    if patch.get(_VERB) == "replace":
        return {key: value for key, value in patch.items() if key != _VERB}
    made = dict(target) if isinstance(target, dict) else {}
    if _KEPT in patch:
        made = {key: value for key, value in made.items() if key in patch[_KEPT]}
    for key, value in patch.items():
        if key.startswith(_DELETED_ITEMS):
            name = key.removeprefix(_DELETED_ITEMS)
            made[name] = [item for item in made.get(name, []) if item not in value]
        elif not key.startswith("$"):
            _merge_field(made, key, value, node.field(key))
    _put_in_order(made, patch, node)
    return made


def _merge_field(made: Object, key: str, value: Any, node: Node) -> None:
    if value is None or (isinstance(value, dict) and value.get(_VERB) == "delete"):
        made.pop(key, None)
    elif isinstance(value, dict):
        made[key] = strategic_merge(made.get(key), value, node)
    elif isinstance(value, list) and node.merge_key is not None:
        made[key] = _merged_list(made.get(key) or [], value, node)
    else:
        made[key] = value


def _merged_list(items: list[Any], patch: list[Any], node: Node) -> list[Any]:
    key = node.merge_key
    if not key:
        return [*items, *(item for item in patch if item not in items)]
    if any(item.get(_VERB) == "replace" for item in patch):
        return [item for item in patch if _VERB not in item]
    made = {item.get(key): item for item in items}
    for item in patch:
        if item.get(_VERB) == "delete":
            made.pop(item.get(key), None)
        else:
            made[item.get(key)] = strategic_merge(made.get(item.get(key)), item, node.item)
    return list(made.values())


def _put_in_order(made: Object, patch: Object, node: Node) -> None:
    """As the patch lists their keys; items that it does not list come last."""
    for directive, wanted in patch.items():
        name = directive.removeprefix(_ORDER)
        if name != directive and name in made:
            key = node.field(name).merge_key
            places = [item.get(key) if key else item for item in wanted]
            made[name] = sorted(made[name], key=lambda item: _place(item, key, places))  # noqa: B023


def _place(item: Any, key: str | None, places: list[Any]) -> int:
    own = item.get(key) if key else item
    return places.index(own) if own in places else len(places)


def json_patch(target: Object, operations: list[Object]) -> Object:
    """RFC 6902, but for `move` and `copy`, which no client here sends."""
    made = {"": deepcopy(target)}
    for operation in operations:
        steps = ["", *map(_unescaped, operation["path"].split("/")[1:])]
        holder: Any = made
        for step in steps[:-1]:
            holder = holder[int(step) if isinstance(holder, list) else step]
        _operate(operation, holder, steps[-1])
    return made[""]


def _operate(operation: Object, holder: Any, last: str) -> None:
    key: Any = last
    if isinstance(holder, list):
        key = len(holder) if last == "-" else int(last)
    match operation["op"]:
        case "add" if isinstance(holder, list):
            holder.insert(key, operation["value"])
        case "add" | "replace":
            holder[key] = operation["value"]
        case "remove":
            del holder[key]
        case "test" if holder[key] == operation["value"]:
            pass
        case other:
            raise unprocessable(f"cannot {other} at {operation['path']}")


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
