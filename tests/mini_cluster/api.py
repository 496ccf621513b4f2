"""The API as an ASGI application over an object store."""

from __future__ import annotations

import json
import traceback
from collections.abc import AsyncIterator, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.mini_cluster import deeds, discovery, openapi, reads
from tests.mini_cluster.access import ANONYMOUS, Access, User
from tests.mini_cluster.asks import Ask, body_of, target_of
from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.refusals import Refusal
from tests.mini_cluster.resources import Resources
from tests.mini_cluster.writes import APPLY, Writes

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
Logs = Callable[[str, str, Object], AsyncIterator[bytes]]
"""Namespace, pod and the query's parameters (container, follow, tailLines, previous) to a
container's output. Whoever runs pods provides it."""


class Api:
    """Answers one cluster's requests. All that it knows is in the store, but for tokens."""

    def __init__(self, store: ObjectStore, logs: Logs | None = None) -> None:
        """`logs` None: nobody runs pods here."""
        self.store = store
        self.access = Access(store)
        self.resources = Resources(store)
        self.app = Starlette(routes=[Route("/{path:path}", self._answer, methods=_METHODS)])
        self.faults: list[str] = []
        """Of the API itself, not of requests: tests look that there are none."""
        self._logs = logs

    async def _answer(self, request: Request) -> Response:
        try:
            user = self.access.user_of(request.headers.get("authorization", ""))
            described = self._described(request)
            if described is not None:
                self.access.require_path(user, request.url.path)
                return described
            return await self._asked(await self._ask(request, user))
        except Refusal as refusal:
            return JSONResponse(refusal.status(), refusal.code)
        except Exception as error:  # whatever it is: kubectl prints it, and the test fails
            self.faults.append(traceback.format_exc())
            return JSONResponse(Refusal(500, "InternalError", repr(error)).status(), 500)

    def _described(self, request: Request) -> Response | None:
        """What the API says of itself; None: something else is asked."""
        path = request.url.path.strip("/")
        resources = self.resources.all()
        if path in ("api", "apis") and "APIGroupDiscoveryList" in request.headers.get("accept", ""):
            body = discovery.aggregated(resources, of_core=path == "api")
            return Response(json.dumps(body), media_type=discovery.AGGREGATED)
        fixed: dict[str, Callable[[], Object]] = {
            "version": discovery.version,
            "api": discovery.core_versions,
            "apis": lambda: discovery.groups(resources),
            "openapi/v3": lambda: openapi.index(resources),
        }
        if path in fixed:
            return JSONResponse(fixed[path]())
        root = path.removeprefix("openapi/v3/")
        theirs = [resource for resource in resources if openapi.root_of(resource) == root]
        if not theirs:
            return None
        if root == path:
            return JSONResponse(discovery.resource_list(theirs[0].api_version, theirs))
        return JSONResponse(openapi.document(root, theirs))

    async def _ask(self, request: Request, user: User) -> Ask:
        """Refusal 404 if there is no such resource, 403 if the user may not."""
        target = target_of(request.url.path, self.resources)
        if target is None:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        media_type = request.headers.get("content-type", "application/json").partition(";")[0]
        ask = Ask(
            method=request.method,
            target=target,
            params=dict(request.query_params),
            user=user,
            media_type=media_type,
            body=body_of(await request.body(), media_type),
            agent=request.headers.get("user-agent", ""),
            wants_table="as=Table" in request.headers.get("accept", ""),
        )
        if target.resource.verbs != ("create",) or user == ANONYMOUS:
            self.access.require(user, ask.deed)
        return ask

    async def _asked(self, ask: Ask) -> Response:
        if ask.verb == "watch":
            return StreamingResponse(reads.watched(self.store, ask), media_type="application/json")
        if ask.target.subresource == "log":
            return self._log(ask)
        store = self.store.copy() if ask.is_dry else self.store
        return JSONResponse(self._done(store, ask), 201 if ask.verb == "create" else 200)

    def _log(self, ask: Ask) -> Response:
        if self._logs is None:
            raise Refusal(501, "NotImplemented", "nobody runs pods in this cluster")
        self.store.get("pods", ask.target.namespace, ask.target.name)
        output = self._logs(ask.target.namespace, ask.target.name, dict(ask.params))
        return StreamingResponse(output, media_type="text/plain")

    def _done(self, store: ObjectStore, ask: Ask) -> Object:
        match ask.verb:
            case "get":
                return reads.got(store, ask)
            case "list":
                return reads.listed(store, ask)
            case "delete":
                return deeds.deleted(store, ask, self.resources)
            case "deletecollection":
                return deeds.all_deleted(store, ask)
            case "create":
                return self._made(store, ask)
        return _rewritten(store, ask)

    def _made(self, store: ObjectStore, ask: Ask) -> Object:
        if ask.target.subresource == "eviction":
            return deeds.evicted(store, ask)
        if ask.target.subresource == "token":
            return deeds.token(self.access, ask)
        if ask.target.resource.verbs == ("create",):
            return deeds.reviewed(self.access, ask.user, ask.target.resource.type_meta | ask.body)
        return _writes(store, ask).create(ask.body)


def _writes(store: ObjectStore, ask: Ask) -> Writes:
    return Writes(store, ask.target.resource, ask.target.namespace, ask.manager)


def _rewritten(store: ObjectStore, ask: Ask) -> Object:
    """By PUT or PATCH."""
    writes, name, body = _writes(store, ask), ask.target.name, ask.body
    is_patch = ask.verb == "patch"
    if ask.target.subresource == "scale":
        return writes.scale(name, body, ask.media_type if is_patch else None)
    if not is_patch:
        return writes.replace(name, body)
    if ask.media_type == APPLY:
        return writes.apply(name, body, force=ask.params.get("force") == "true")
    return writes.patch(name, body, ask.media_type)
