"""One request, understood: what it is about, what it wants, and in which words it came."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests.mini_cluster import protobuf
from tests.mini_cluster.access import Deed, User
from tests.mini_cluster.apply import Manager
from tests.mini_cluster.refusals import Refusal, bad_request
from tests.mini_cluster.resources import Resource, Resources
from tests.mini_cluster.writes import APPLY

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_MAX_MANAGER = 128


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names. Name "": all of them."""

    resource: Resource
    namespace: str
    name: str
    subresource: str


def target_of(path: str, resources: Resources) -> Target | None:
    """None: there is no such resource."""
    steps = [step for step in path.split("/") if step]
    if steps[:1] == ["apis"] and len(steps) > 3:
        api_version, rest = "/".join(steps[1:3]), steps[3:]
    elif steps[:1] == ["api"] and len(steps) > 2:
        api_version, rest = steps[1], steps[2:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = resources.find(api_version, rest[0])
    name, subresource, *more = [*rest[1:], "", ""]
    if resource is None or "".join(more) or (subresource not in ("", *resource.subresources)):
        return None
    return Target(resource, namespace, name, subresource)


@dataclass(frozen=True, slots=True)
class Ask:
    """`params` are the query's, the last of each name; `body` None: there was none."""

    method: str
    target: Target
    params: Mapping[str, str]
    user: User
    media_type: str
    body: Any
    agent: str
    """Who the client says it is."""
    wants_table: bool

    @property
    def verb(self) -> str:
        """RBAC's."""
        if self.method == "GET":
            return "get" if self.target.name else "watch" if self.is_watch else "list"
        if self.method == "DELETE":
            return "delete" if self.target.name else "deletecollection"
        return _VERBS[self.method]

    @property
    def deed(self) -> Deed:
        target = self.target
        part = f"/{target.subresource}" if target.subresource else ""
        resource = target.resource
        return Deed(
            self.verb, resource.group, resource.plural + part, target.namespace, target.name
        )

    @property
    def is_watch(self) -> bool:
        return self.params.get("watch") in ("1", "true")

    @property
    def is_dry(self) -> bool:
        body = self.body if isinstance(self.body, dict) else {}
        return "dryRun" in self.params or bool(body.get("dryRun"))

    @property
    def manager(self) -> Manager:
        """By the name it gives itself, else by its program's."""
        operation = "Apply" if self.media_type == APPLY else "Update"
        name = self.params.get("fieldManager") or self.agent.partition("/")[0] or "unknown"
        return Manager(name[:_MAX_MANAGER], operation, self.target.subresource)


def body_of(raw: bytes, media_type: str) -> Any:
    """None if it is empty. Refusal 400 or 415 if it cannot be read."""
    if not raw:
        return None
    if protobuf.is_protobuf(media_type):
        return protobuf.decoded(raw)
    if "cbor" in media_type:
        raise Refusal(415, "UnsupportedMediaType", f"{media_type} is not read here, send JSON")
    try:
        return yaml.load(raw, _Plain) if "yaml" in media_type else json.loads(raw)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"the body is not {media_type}: {error}") from error


class _Plain(yaml.SafeLoader):
    """YAML whose times stay text, as in JSON."""


_Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if not tag.endswith(":timestamp")]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
