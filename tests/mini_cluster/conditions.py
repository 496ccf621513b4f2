"""Conditions in a status: what holds now, and since when."""

from __future__ import annotations

from datetime import datetime

from tests.mini_cluster.history import Object
from tests.mini_cluster.metadata import timestamp


def condition(type_: str, holds: bool, reason: str = "", message: str = "") -> Object:
    """Without its times: `merged` gives them."""
    made = {"type": type_, "status": str(holds)}
    return made | ({"reason": reason, "message": message} if reason else {})


def merged(old: list[Object], new: list[Object], now: datetime) -> list[Object]:
    """The new ones; each keeps the moment since when it has been as it is."""
    before = {found["type"]: found for found in old}
    return [_since(before.get(found["type"]), found, timestamp(now)) for found in new]


def _since(old: Object | None, new: Object, moment: str) -> Object:
    if old is not None and old["status"] == new["status"]:
        moment = old["lastTransitionTime"]
    return new | {"lastTransitionTime": moment}


def status_of(found: Object, type_: str) -> bool:
    """Whether an object's condition says True; False where it says nothing."""
    conditions = found.get("status", {}).get("conditions", [])
    return any(each["type"] == type_ and each["status"] == "True" for each in conditions)
