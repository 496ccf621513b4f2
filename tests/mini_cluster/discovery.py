"""What clients ask first: which groups, versions and resources there are.

Aggregated in one answer for those that accept it, else group by group.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from tests.mini_cluster.history import Object
from tests.mini_cluster.resources import Resource

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_SUBRESOURCES = {
    "status": ("", ["get", "patch", "update"]),
    "scale": ("Scale", ["get", "patch", "update"]),
    "log": ("", ["get"]),
    "eviction": ("Eviction", ["create"]),
    "token": ("TokenRequest", ["create"]),
}
"""The kind of each ("": its parent's), and its verbs."""
_GROUP_OF_KIND = {
    "Scale": ("autoscaling", "v1"),
    "Eviction": ("policy", "v1"),
    "TokenRequest": ("authentication.k8s.io", "v1"),
}


def version() -> Object:
    """`/version`: that of the schemas."""
    return {"major": "1", "minor": "37", "gitVersion": "v1.37.0", "platform": "linux/amd64"}


def aggregated(resources: list[Resource], *, of_core: bool) -> Object:
    """`/api` (the core's group) or `/apis` (all others), with every resource."""
    items = [
        {"metadata": {"name": group} if group else {}, "versions": _versions(found)}
        for group, found in _by_group(resources)
        if (group == "") == of_core
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items}


def core_versions() -> Object:
    """`/api`, plain."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups(resources: list[Resource]) -> Object:
    """`/apis`, plain."""
    found = [_group(group, theirs) for group, theirs in _by_group(resources) if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def resource_list(api_version: str, resources: list[Resource]) -> Object:
    """`/api/v1` or `/apis/GROUP/VERSION`."""
    listed: list[Object] = []
    for resource in resources:
        listed.append(_plain(resource) | {"kind": resource.kind, "verbs": list(resource.verbs)})
        for name in filter(_SUBRESOURCES.get, resource.subresources):
            listed.append(_plain_sub(resource, name))
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version,
        "resources": listed,
    }


def _by_group(resources: list[Resource]) -> list[tuple[str, list[Resource]]]:
    ordered = sorted(resources, key=lambda resource: resource.group)
    return [(group, list(found)) for group, found in groupby(ordered, lambda each: each.group)]


def _group(group: str, resources: list[Resource]) -> Object:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in dict.fromkeys(resource.version for resource in resources)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _versions(resources: list[Resource]) -> list[Object]:
    return [
        {
            "version": version,
            "freshness": "Current",
            "resources": [_full(each) for each in resources if each.version == version],
        }
        for version in dict.fromkeys(resource.version for resource in resources)
    ]


def _plain(resource: Resource) -> Object:
    return {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.is_namespaced,
        "shortNames": list(resource.short_names),
        "categories": resource.categories,
    }


def _plain_sub(resource: Resource, name: str) -> Object:
    """With the group of its kind where that is another's: without it kubectl drain deletes pods
    and evicts none."""
    kind, verbs = _SUBRESOURCES[name]
    group, version = _GROUP_OF_KIND.get(kind, ("", ""))
    return {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.is_namespaced,
        "kind": kind or resource.kind,
        "verbs": verbs,
    } | ({"group": group, "version": version} if version else {})


def _full(resource: Resource) -> Object:
    return {
        "resource": resource.plural,
        "responseKind": _gvk(resource),
        "scope": "Namespaced" if resource.is_namespaced else "Cluster",
        "singularResource": resource.singular,
        "shortNames": list(resource.short_names),
        "categories": resource.categories,
        "verbs": list(resource.verbs),
        "subresources": [
            _sub(resource, name) for name in resource.subresources if name in _SUBRESOURCES
        ],
    }


def _sub(resource: Resource, name: str) -> dict[str, Any]:
    kind, verbs = _SUBRESOURCES[name]
    group, version = _GROUP_OF_KIND.get(kind, (resource.group, resource.version))
    response = {"group": group, "version": version, "kind": kind or resource.kind}
    return {"subresource": name, "responseKind": response, "verbs": verbs}


def _gvk(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}
