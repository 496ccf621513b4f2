"""What operators and load balancers ask: health, metrics, version, models."""

from __future__ import annotations

from typing import Protocol

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from cluster import VERSION
from cluster.adapter import Adapter
from cluster.errors import NotReady
from router.api.answers.bodies import ModelBody, ModelListBody
from router.api.http.errors import error_body, error_headers
from router.front.doors import DoorContext
from router.front.served_model import ServedModel
from router.tenants.tenant import ANYBODY, Tenant


class Readiness(Protocol):
    """Whether a request that came now could be served: FrontReadiness, or what a test says."""

    def why_not_ready(self) -> str | None:
        """None when it could; else what is missing, in words. Asked on every probe."""
        ...


class HealthBody(msgspec.Struct):
    """GET /health when all is well."""

    status: str = "ok"


class StatusEndpoints:
    """GET endpoints that no worker is needed for."""

    def __init__(
        self, door: DoorContext, readiness: Readiness, registry: CollectorRegistry
    ) -> None:
        self._model = door.model
        self._chance = door.chance
        self._readiness = readiness
        self._registry = registry

    async def health(self, _request: Request) -> Response:
        """200 when a request would be served, else 503 with the reason."""
        reason = self._readiness.why_not_ready()
        if reason is None:
            return _json(msgspec.json.encode(HealthBody()))
        error = NotReady(reason)
        told = error_headers(error, self._chance.random)
        headers = {key.decode(): value.decode() for key, value in told}
        return _json(error_body(error), status=503, headers=headers)

    async def live(self, _request: Request) -> Response:
        """200 while this process answers at all, with workers or without, draining or not."""
        return _json(msgspec.json.encode(HealthBody()))

    async def metrics(self, _request: Request) -> Response:
        """Prometheus text."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def version(self, _request: Request) -> Response:
        """The program's version."""
        return _json(msgspec.json.encode({"version": VERSION}))

    async def models(self, request: Request) -> Response:
        """The one model, and its adapters that the key is for."""
        return _json(listed(self._model, tenant_in(request)))

    async def model(self, request: Request) -> Response:
        """One of them by its name. Raises UnknownModel and AdapterUnread."""
        name = self._model.adapter_name_in(request.path_params["name"])
        if not name:
            return _json(msgspec.json.encode(_body_of(self._model)))
        self._model.check_key(tenant_in(request), name)
        adapter = self._model.listed_adapter(name)
        return _json(msgspec.json.encode(_body_of_adapter(self._model, adapter)))


def listed(model: ServedModel, tenant: Tenant = ANYBODY) -> bytes:
    """GET /v1/models."""
    adapters = [item for item in model.all_adapters() if tenant.may_ask(item.name)]
    bodies = [_body_of(model), *(_body_of_adapter(model, item) for item in adapters)]
    return msgspec.json.encode(ModelListBody(bodies))


def tenant_in(request: Request) -> Tenant:
    """Who asks; nobody in particular where no key is asked for."""
    tenant: Tenant = request.scope["state"].get("tenant", ANYBODY)
    return tenant


def _body_of(model: ServedModel) -> ModelBody:
    return ModelBody(model.name, model.created_s, model.max_context_tokens, model.defaults)


def _body_of_adapter(model: ServedModel, adapter: Adapter) -> ModelBody:
    body = _body_of(model)
    return msgspec.structs.replace(body, id=adapter.name, parent=model.name)


def _json(body: bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")
