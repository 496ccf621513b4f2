"""Objects taken apart into fields: the unit in which managers own what is written.

A path is a tuple of steps as `managedFields` writes them: `f:NAME` into a map, `k:{"name":"x"}`
to a list's item by its keys, `v:VALUE` to an item of a set. An item has an entry of its own beside
those of its fields; so has an empty map. Lists and maps that are replaced as a whole are one field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tests.mini_cluster.history import Object
from tests.mini_cluster.schemas import Node

Path = tuple[str, ...]
_ITEM = "an item of a list"
_DEFAULTS = {"protocol": "TCP"}
"""Of fields that tell a list's items apart and may be left out."""
_METADATA_OF_THE_SERVER = (
    *("name", "namespace", "generateName", "uid", "resourceVersion", "generation"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("managedFields", "selfLink"),
)
_NOBODYS = {("f:apiVersion",), ("f:kind",)} | {
    ("f:metadata", f"f:{name}") for name in _METADATA_OF_THE_SERVER
}


def flat(made: Object, node: Node) -> dict[Path, Any]:
    """Every field that somebody may own, and its value."""
    found = _fields((), made, node)
    return {path: value for path, value in found if path[:2] not in _NOBODYS}


def _fields(path: Path, value: Any, node: Node) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and not node.is_atomic:
        if not value and path:
            yield path, value
        for key, each in value.items():
            yield from _fields((*path, f"f:{key}"), each, node.field(key))
    elif isinstance(value, list) and (node.list_keys or node.is_set):
        for item in value:
            here = (*path, step_of(item, node))
            yield here, _ITEM
            if node.list_keys:
                yield from _fields(here, item, node.item)
    else:
        yield path, value


def step_of(item: Any, node: Node) -> str:
    """The last step to an item of a list."""
    if not node.list_keys:
        return f"v:{_text(item)}"
    keys = {key: item.get(key, _DEFAULTS.get(key)) for key in sorted(node.list_keys)}
    return f"k:{_text({key: value for key, value in keys.items() if value is not None})}"


def merged(live: Any, applied: Any, node: Node) -> Any:
    """`live` with what `applied` says: maps and keyed lists merge, all else is replaced."""
    if isinstance(applied, dict) and isinstance(live, dict) and not node.is_atomic:
        return live | {
            key: merged(live.get(key), value, node.field(key)) for key, value in applied.items()
        }
    if isinstance(applied, list) and isinstance(live, list) and (node.list_keys or node.is_set):
        there = {step_of(item, node): item for item in live}
        for item in applied:
            step = step_of(item, node)
            there[step] = merged(there.get(step), item, node.item)
        return list(there.values())
    return applied


def without(made: Any, paths: Iterable[Path], node: Node) -> Any:
    """Less those fields and items; what loses all of its fields so is gone as well. What tells an
    item from others goes with the item alone."""
    for path in sorted(paths, key=len):
        made = _without(made, path, node)
    return made


def _without(made: Any, path: Path, node: Node) -> Any:
    step, rest = path[0], path[1:]
    if isinstance(made, list):
        if rest and rest[0].removeprefix("f:") in node.list_keys:
            return made
        kept = [
            _without(item, rest, node.item) if rest and step_of(item, node) == step else item
            for item in made
        ]
        return kept if rest else [item for item in kept if step_of(item, node) != step]
    name = step.removeprefix("f:")
    if not isinstance(made, dict) or name not in made:
        return made
    if rest and not made[name]:
        return made
    if rest and (left := _without(made[name], rest, node.field(name))):
        return made | {name: left}
    return {key: value for key, value in made.items() if key != name}


def nested(paths: Iterable[Path]) -> Object:
    """As `fieldsV1` has them."""
    made: Object = {}
    for path in sorted(paths):
        place = made
        for step in path:
            place = place.setdefault(step, {})
        if path[-1].startswith("k:"):
            place["."] = {}
    return made


def paths_in(fields: Object, above: Path = ()) -> set[Path]:
    """The other way round."""
    found = set()
    for step, below in fields.items():
        path = above if step == "." else (*above, step)
        found |= {path} if step == "." or not below else paths_in(below, path)
    return found


def said(path: Path) -> str:
    """As messages name a field: `.spec.containers[name="web"].image`."""
    made = ""
    for step in path:
        kind, _, rest = step.partition(":")
        if kind == "k":
            keys = ",".join(f"{key}={_text(value)}" for key, value in json.loads(rest).items())
            made += f"[{keys}]"
        else:
            made += f".{rest}" if kind == "f" else f"[{rest}]"
    return made


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
