"""A pod's volumes, as folders of this machine."""

from __future__ import annotations

from pathlib import Path

from tests.mini_cluster.api_of_pods import ApiOfPods
from tests.mini_cluster.claims import CLAIMS, ClaimController
from tests.mini_cluster.configuration import MissingConfiguration, config_map, field_of, secret
from tests.mini_cluster.container_process import Mount
from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore


class PodVolumes:
    """Of one pod, below a folder that its owner removes."""

    def __init__(
        self, store: ObjectStore, claims: ClaimController, api: ApiOfPods, root: Path
    ) -> None:
        self._api = api
        self._store = store
        self._claims = claims
        self._root = root

    def fill(self, pod: Object) -> dict[str, Path]:
        """By name. Called again before each start, it brings what has changed since. Raises
        MissingConfiguration for what is named and not there."""
        return {each["name"]: self._filled(pod, each) for each in pod["spec"].get("volumes", [])}

    def _filled(self, pod: Object, volume: Object) -> Path:
        if "persistentVolumeClaim" in volume:
            return self._claimed(pod, volume["persistentVolumeClaim"]["claimName"])
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        folder = self._root / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        sources = volume.get("projected", {}).get("sources", [volume])
        mode = _mode(volume)
        for source in sources:
            for path, content in self._files(pod, source).items():
                _write(folder / path, content, mode)
        return folder

    def _claimed(self, pod: Object, name: str) -> Path:
        claim = self._store.find(CLAIMS, pod["metadata"]["namespace"], name)
        if claim is None or claim.get("status", {}).get("phase") != "Bound":
            raise MissingConfiguration(f'persistentvolumeclaim "{name}" not found or not bound')
        return self._claims.folder(claim)

    def _files(self, pod: Object, source: Object) -> dict[str, bytes]:
        namespace = pod["metadata"]["namespace"]
        if "downwardAPI" in source:
            items = source["downwardAPI"].get("items", [])
            fields = {item["path"]: item["fieldRef"]["fieldPath"] for item in items}
            return {path: field_of(pod, field).encode() for path, field in fields.items()}
        if "serviceAccountToken" in source:
            path = source["serviceAccountToken"]["path"]
            return {path: self._api.token_of(pod).encode()}
        for kind, read in (("secret", secret), ("configMap", config_map)):
            if kind in source:
                return _chosen(read(self._store, namespace, source[kind]), source[kind])
        return {}


def _mode(volume: Object) -> int:
    for kind in ("secret", "configMap", "projected", "downwardAPI"):
        if kind in volume:
            mode: int = volume[kind].get("defaultMode", 0o644)
            return mode
    return 0o644


def _chosen(found: dict[str, bytes], source: Object) -> dict[str, bytes]:
    items = source.get("items")
    if items is None:
        return found
    lacking = [item["key"] for item in items if item["key"] not in found]
    if lacking and not source.get("optional"):
        raise MissingConfiguration(f"references non-existent secret key: {lacking[0]}")
    return {item["path"]: found[item["key"]] for item in items if item["key"] in found}


def _write(path: Path, content: bytes, mode: int) -> None:
    """In place of what was there, for readers whole."""
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    new.chmod(mode)
    new.replace(path)


def mounts_of(container: Object, volumes: dict[str, Path]) -> list[Mount]:
    """Where the container asks for them."""
    return [
        Mount(
            str(volumes[mount["name"]] / mount.get("subPath", "")),
            mount["mountPath"].rstrip("/"),
            bool(mount.get("readOnly", False)),
        )
        for mount in container.get("volumeMounts", [])
    ]
