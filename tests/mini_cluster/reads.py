"""Getting, listing and watching through the API."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator

from tests.mini_cluster.asks import Ask
from tests.mini_cluster.evictions import BUDGETS, disruptions
from tests.mini_cluster.history import Event, Matches, Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.quotas import QUOTAS, quota_status
from tests.mini_cluster.refusals import Refusal
from tests.mini_cluster.scale import scale_of
from tests.mini_cluster.selectors import matching
from tests.mini_cluster.tables import table

_INITIAL_END = {"k8s.io/initial-events-end": "true"}
_LONGEST_WATCH_S = 600.0
_COUNTED = {BUDGETS: disruptions, QUOTAS: quota_status}


def got(store: ObjectStore, ask: Ask) -> Object:
    """One object, its Scale, or a table of it."""
    target = ask.target
    found = store.get(target.resource.name, target.namespace, target.name)
    if target.subresource == "scale":
        return scale_of(target.resource, found)
    return _shown(store, ask, [found]) if ask.wants_table else _current(store, ask, found)


def listed(store: ObjectStore, ask: Ask) -> Object:
    """By pages, where a limit asks for them. A later page has what is there by then, and says the
    first one's version: a watch from it tells what has changed in between."""
    resource = ask.target.resource
    found = store.select(resource.name, ask.target.namespace, _matches(ask))
    version, after = _continued(ask, store)
    found = [each for each in found if _place(each) > after]
    limit = int(ask.params.get("limit") or 0) or len(found)
    page, rest = found[:limit], found[limit:]
    metadata: Object = {"resourceVersion": version}
    if rest:
        token = json.dumps([version, _place(page[-1])]).encode()
        metadata |= {
            "continue": base64.urlsafe_b64encode(token).decode(),
            "remainingItemCount": len(rest),
        }
    if ask.wants_table:
        made = _shown(store, ask, page)
        return made | {"metadata": metadata}
    items = [_current(store, ask, each) for each in page]
    kind = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
    return kind | {"metadata": metadata, "items": items}


async def watched(store: ObjectStore, ask: Ask) -> AsyncIterator[bytes]:
    """Lines of JSON until the client's timeout; a refusal is the last of them."""
    timeout_s = min(float(ask.params.get("timeoutSeconds") or _LONGEST_WATCH_S), _LONGEST_WATCH_S)
    ends = asyncio.get_running_loop().time() + timeout_s
    events = store.watch(
        ask.target.resource.name,
        _since(ask),
        namespace=ask.target.namespace,
        matches=_matches(ask),
    )
    try:
        while True:
            left_s = ends - asyncio.get_running_loop().time()
            event = await asyncio.wait_for(anext(events), left_s)
            if event.type != "BOOKMARK" or ask.params.get("allowWatchBookmarks") == "true":
                yield _line(event.type, _told(store, ask, event))
    except TimeoutError:
        return
    except Refusal as refusal:
        yield _line("ERROR", refusal.status())
    finally:
        await events.aclose()


def _since(ask: Ask) -> int | None:
    """The version to go on from; None: begin with what is there."""
    version = ask.params.get("resourceVersion") or "0"
    is_whole = ask.params.get("sendInitialEvents") == "true" or version == "0"
    return None if is_whole else int(version)


def _told(store: ObjectStore, ask: Ask, event: Event) -> Object:
    if event.type == "BOOKMARK":
        metadata = event.object["metadata"]
        if ask.params.get("sendInitialEvents") == "true":
            metadata |= {"annotations": _INITIAL_END}
        return ask.target.resource.type_meta | {"metadata": metadata}
    if ask.wants_table:
        return _shown(store, ask, [event.object])
    return _current(store, ask, event.object)


def _line(type_: str, told: Object) -> bytes:
    return json.dumps({"type": type_, "object": told}).encode() + b"\n"


def _shown(store: ObjectStore, ask: Ask, found: list[Object]) -> Object:
    current = [_current(store, ask, each) for each in found]
    return table(ask.target.resource, current, str(store.version))


def _current(store: ObjectStore, ask: Ask, found: Object) -> Object:
    """In the version that was asked for. The status of a budget, and of a quota, is counted when it
    is looked at."""
    count = _COUNTED.get(ask.target.resource.name)
    status = {} if count is None else {"status": count(store, found)}
    return found | ask.target.resource.type_meta | status


def _matches(ask: Ask) -> Matches:
    fields = ask.params.get("fieldSelector", "")
    if ask.target.name:
        fields = f"{fields},metadata.name={ask.target.name}"
    return matching(ask.params.get("labelSelector", ""), fields)


def _place(found: Object) -> list[str]:
    """In the order of a list."""
    return [found["metadata"].get("namespace", ""), found["metadata"]["name"]]


def _continued(ask: Ask, store: ObjectStore) -> tuple[str, list[str]]:
    """The first page's version, and the last place that has been told."""
    if "continue" not in ask.params:
        return str(store.version), []
    try:
        version, place = json.loads(base64.urlsafe_b64decode(ask.params["continue"]))
    except ValueError as error:
        raise Refusal(400, "BadRequest", f"continue: {error}") from error
    return version, place
