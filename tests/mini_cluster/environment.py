"""The variables and the command line of a container."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.mini_cluster.configuration import MissingConfiguration, config_map, field_of, secret
from tests.mini_cluster.history import Object
from tests.mini_cluster.images import Image
from tests.mini_cluster.object_store import ObjectStore

_REFERENCE = re.compile(r"\$(\$)?\(([-._A-Za-z0-9]+)\)")
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104


def environment(store: ObjectStore, pod: Object, container: Object, image: Image) -> dict[str, str]:
    """Raises MissingConfiguration for a secret or a config map that is not there.

    All pods share the host's network. Where a variable says that a container listens at all
    addresses it therefore says here: at the pod's.
    """
    made = dict(image.environ)
    for source in container.get("envFrom", []):
        made |= _all_of(store, pod, source)
    for item in container.get("env", []):
        value = _value(store, pod, container, item)
        if value is not None:
            made[item["name"]] = expanded(value, made)
    return {
        name: pod["status"]["podIP"] if value == _ANY_ADDRESS else value
        for name, value in made.items()
    }


def command_of(container: Object, image: Image, environ: dict[str, str]) -> list[str]:
    words: Sequence[str] = container.get("command") or image.entrypoint
    return [expanded(word, environ) for word in (*words, *container.get("args", []))]


def expanded(text: str, known: dict[str, str]) -> str:
    """`$(NAME)` by its value, unless nobody knows it; `$$(NAME)` is `$(NAME)`."""

    def replacement(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        return known.get(found[2], found[0])

    return _REFERENCE.sub(replacement, text)


def _all_of(store: ObjectStore, pod: Object, source: Object) -> dict[str, str]:
    namespace, prefix = pod["metadata"]["namespace"], source.get("prefix", "")
    read = config_map if "configMapRef" in source else secret
    found = read(store, namespace, source.get("configMapRef") or source["secretRef"])
    return {prefix + key: value.decode() for key, value in found.items()}


def _value(store: ObjectStore, pod: Object, container: Object, item: Object) -> str | None:
    """None where what is optional is missing: the variable is not set."""
    source = item.get("valueFrom")
    if not source:
        return str(item.get("value", ""))
    if "fieldRef" in source:
        return field_of(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return _limit(container, source["resourceFieldRef"]["resource"])
    key = source.get("secretKeyRef") or source["configMapKeyRef"]
    read = secret if "secretKeyRef" in source else config_map
    found = read(store, pod["metadata"]["namespace"], key).get(key["key"])
    if found is None and not key.get("optional"):
        raise MissingConfiguration(f"couldn't find key {key['key']} in {key['name']}")
    return None if found is None else found.decode()


def _limit(container: Object, resource: str) -> str:
    """`limits.cpu`, as it is written; of what is not limited: 0."""
    kind, _, name = resource.partition(".")
    return str(container.get("resources", {}).get(kind, {}).get(name, 0))
