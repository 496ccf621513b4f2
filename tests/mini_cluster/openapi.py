"""`/openapi/v3`: enough of it for clients to learn that the server refuses unknown fields.

kubectl looks there for the parameter `fieldValidation` of a kind's PATCH, and validates by itself
where it does not find it.
"""

from __future__ import annotations

from tests.mini_cluster.history import Object
from tests.mini_cluster.resources import Resource

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def index(resources: list[Resource]) -> Object:
    """Where each group's version is described."""
    versions = dict.fromkeys(root_of(resource) for resource in resources)
    return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in versions}}


def document(root: str, resources: list[Resource]) -> Object:
    """Of one group's version, named as in the index; without the schemas."""
    paths = {
        f"/{root}/{_place(resource)}{resource.plural}/{{name}}": {"patch": _patch(resource)}
        for resource in resources
        if root_of(resource) == root
    }
    info = {"title": "Kubernetes", "version": "v1.37.0"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}


def root_of(resource: Resource) -> str:
    """The path under which its group's version lies."""
    return f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"


def _place(resource: Resource) -> str:
    return "namespaces/{namespace}/" if resource.is_namespaced else ""


def _patch(resource: Resource) -> Object:
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    return {
        "parameters": _PARAMETERS,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": gvk,
    }
