"""Server-side apply, and who manages which field.

    apply    what a manager applies becomes so; what it applied before and no longer does goes,
             unless another manager has it as well; a field that another manager has and that
             would change is a conflict, unless forced: then that manager has lost it
    update   (PUT, and all other patches) what has changed is the writer's from now on

A manager is a name, an operation and a subresource. Controllers that write to the store itself
are no managers, and fields that only they have set are nobody's.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tests.mini_cluster.fields import Path, flat, merged, nested, paths_in, said, without
from tests.mini_cluster.history import Object
from tests.mini_cluster.refusals import Refusal
from tests.mini_cluster.schemas import Node


@dataclass(frozen=True, slots=True)
class Manager:
    name: str
    operation: str
    """Apply or Update."""
    subresource: str = ""


_Managed = dict[Manager, set[Path]]


@dataclass(frozen=True, slots=True)
class Bookkeeper:
    """Of one kind of object."""

    node: Node
    api_version: str
    now: Callable[[], str]

    def applied(self, live: Object | None, wanted: Object, manager: Manager, force: bool) -> Object:
        """The object as it shall be, with its managers. Refusal 409 names who stands against it."""
        managed = _managers(live or {})
        mine = set(flat(wanted, self.node))
        made = merged(live or {}, wanted, self.node)
        before = flat(live or {}, self.node)
        changed = {
            path for path, value in flat(made, self.node).items() if _differs(before, path, value)
        }
        self._settle(managed, manager, mine & changed, force)
        dropped = managed.pop(manager, set()) - mine
        others = set().union(*managed.values())
        gone = {path for path in dropped if not _is_held(path, others | mine)}
        made = without(made, gone, self.node)
        return self._signed(made, managed | {manager: mine}, live or {})

    def updated(self, old: Object | None, new: Object, manager: Manager) -> Object:
        """`new`, whose changes are the manager's."""
        managed = _managers(old or {})
        before, after = flat(old or {}, self.node), flat(new, self.node)
        changed = {path for path, value in after.items() if _differs(before, path, value)}
        for paths in managed.values():
            paths.intersection_update(after)
            paths.difference_update(changed)
        if changed:
            managed[manager] = managed.get(manager, set()) | changed
        return self._signed(new, managed, old or {})

    def _settle(self, managed: _Managed, manager: Manager, changed: set[Path], force: bool) -> None:
        others = {other: paths & changed for other, paths in managed.items() if other != manager}
        if force:
            for other, lost in others.items():
                managed[other] -= lost
        elif any(others.values()):
            raise self._conflicts(others)

    def _signed(self, made: Object, managed: _Managed, old: Object) -> Object:
        """With `managedFields`; an entry that says what it said keeps its time."""
        before = _managers(old)
        times = {_manager(each): each["time"] for each in _entries(old)}
        entries = [
            self._entry(
                manager, paths, times.get(manager) if before.get(manager) == paths else None
            )
            for manager, paths in managed.items()
            if paths
        ]
        metadata = deepcopy(made.get("metadata", {}))
        return made | {"metadata": metadata | {"managedFields": entries}}

    def _entry(self, manager: Manager, paths: set[Path], time: str | None) -> Object:
        made: dict[str, Any] = {"manager": manager.name, "operation": manager.operation}
        made |= {"apiVersion": self.api_version, "time": time or self.now()}
        made |= {"fieldsType": "FieldsV1", "fieldsV1": nested(paths)}
        return made | ({"subresource": manager.subresource} if manager.subresource else {})

    def _conflicts(self, others: _Managed) -> Refusal:
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {self._said(other)}",
                "field": said(path),
            }
            for other, paths in others.items()
            for path in sorted(paths)
        ]
        listed = "; ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
        plural = "conflicts" if len(causes) > 1 else "conflict"
        message = f"Apply failed with {len(causes)} {plural}: {listed}"
        return Refusal(409, "Conflict", message, causes=causes)

    def _said(self, manager: Manager) -> str:
        under = f' with subresource "{manager.subresource}"' if manager.subresource else ""
        using = f" using {self.api_version}" if manager.operation == "Update" else ""
        return f'"{manager.name}"{under}{using}'


def _entries(found: Object) -> list[Object]:
    return found.get("metadata", {}).get("managedFields") or []


def _manager(entry: Object) -> Manager:
    return Manager(entry["manager"], entry["operation"], entry.get("subresource", ""))


def _managers(found: Object) -> _Managed:
    return {_manager(entry): paths_in(entry["fieldsV1"]) for entry in _entries(found)}


def _differs(before: dict[Path, Any], path: Path, value: Any) -> bool:
    return path not in before or before[path] != value


def _is_held(path: Path, others: set[Path]) -> bool:
    """By itself, or something within it."""
    return any(other[: len(path)] == path for other in others)
