"""Who asks, and what they may: tokens of service accounts, and RBAC from the store alone.

A token is good for as long as its service account is there. Who is known is allowed nothing by
default but to look at the API's resources and to ask what they may; the administrator, all. Who
shows no token is nobody in particular, as API servers have it unless they are told otherwise: they
may ask for the version.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore
from tests.mini_cluster.refusals import Refusal

_ROLES = "roles.rbac.authorization.k8s.io"
_CLUSTER_ROLES = "clusterroles.rbac.authorization.k8s.io"
_BINDINGS = "rolebindings.rbac.authorization.k8s.io"
_CLUSTER_BINDINGS = "clusterrolebindings.rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...]

    @property
    def is_administrator(self) -> bool:
        return "system:masters" in self.groups


@dataclass(frozen=True, slots=True)
class Deed:
    """What somebody wants to do, in RBAC's words."""

    verb: str
    group: str
    resource: str
    """Plural, with a subresource after a slash."""
    namespace: str = ""
    """"": of the cluster, or in all namespaces."""
    name: str = ""

    def __str__(self) -> str:
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'{self.verb} resource "{self.resource}" in API group "{self.group}" {where}'


@dataclass(frozen=True, slots=True)
class _Token:
    namespace: str
    account: str
    uid: str


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
ADMINISTRATOR = User("kubernetes-admin", ("system:masters", "system:authenticated"))


class Access:
    """Holds the tokens, as many as are asked for while the cluster lives."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._tokens: dict[str, _Token] = {}
        self.administrator_token = secrets.token_urlsafe(24)

    def token_of(self, namespace: str, account: str) -> str:
        """A new one. Refusal 404 if there is no such service account."""
        found = self._store.get("serviceaccounts", namespace, account)
        token = secrets.token_urlsafe(24)
        self._tokens[token] = _Token(namespace, account, found["metadata"]["uid"])
        return token

    def user_of(self, authorization: str) -> User:
        """Of a request's header. Refusal 401 for a token that is not, or no longer, good."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else ""
        if not token:
            return ANONYMOUS
        if secrets.compare_digest(token.encode(), self.administrator_token.encode()):
            return ADMINISTRATOR
        if (known := self._tokens.get(token)) is not None:
            account = self._store.find("serviceaccounts", known.namespace, known.account)
            if account is not None and account["metadata"]["uid"] == known.uid:
                return _service_account(known.namespace, known.account)
        raise Refusal(401, "Unauthorized", "Unauthorized")

    def require_path(self, user: User, path: str) -> None:
        """To look at what the API says of itself. Refusal 403, in the words of the real one."""
        if user == ANONYMOUS and path != "/version":
            words = f'forbidden: User "{user.name}" cannot get path "{path}"'
            raise Refusal(403, "Forbidden", words)

    def require(self, user: User, deed: Deed) -> None:
        """Refusal 403, in the words of the real one."""
        if not self.allows(user, deed):
            plural, _, _ = deed.resource.partition("/")
            what = f"{plural}.{deed.group}" if deed.group else plural
            name = f' "{deed.name}"' if deed.name else ""
            message = f'{what}{name} is forbidden: User "{user.name}" cannot {deed}'
            details = {"name": deed.name, "group": deed.group, "kind": plural}
            raise Refusal(403, "Forbidden", message, **details)

    def allows(self, user: User, deed: Deed) -> bool:
        return user.is_administrator or any(
            _permits(rule, deed) for rule in self._rules(user, deed.namespace)
        )

    def _rules(self, user: User, namespace: str) -> list[Object]:
        bindings = self._store.select(_CLUSTER_BINDINGS)
        if namespace:
            bindings += self._store.select(_BINDINGS, namespace)
        return [
            rule
            for binding in bindings
            if any(_is_meant(subject, binding, user) for subject in binding.get("subjects", ()))
            for rule in self._role_of(binding).get("rules") or ()
        ]

    def _role_of(self, binding: Object) -> Object:
        reference = binding["roleRef"]
        if reference["kind"] == "ClusterRole":
            return self._store.find(_CLUSTER_ROLES, "", reference["name"]) or {}
        namespace = binding["metadata"]["namespace"]
        return self._store.find(_ROLES, namespace, reference["name"]) or {}


def _service_account(namespace: str, account: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    name = f"system:serviceaccount:{namespace}:{account}"
    return User(name, (*groups, "system:authenticated"))


def _is_meant(subject: Object, binding: Object, user: User) -> bool:
    if subject["kind"] == "Group":
        return subject["name"] in user.groups
    if subject["kind"] == "ServiceAccount":
        namespace = subject.get("namespace") or binding["metadata"].get("namespace", "")
        return user.name == f"system:serviceaccount:{namespace}:{subject['name']}"
    return bool(subject["name"] == user.name)


def _permits(rule: Object, deed: Deed) -> bool:
    names = rule.get("resourceNames")
    return (
        _has(rule.get("verbs"), deed.verb)
        and _has(rule.get("apiGroups"), deed.group)
        and _has(rule.get("resources"), deed.resource)
        and (not names or deed.name in names)
    )


def _has(allowed: list[Any] | None, wanted: str) -> bool:
    listed = allowed or []
    _, slash, subresource = wanted.partition("/")
    return "*" in listed or wanted in listed or bool(slash and f"*/{subresource}" in listed)
