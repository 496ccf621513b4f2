"""Claims of storage: bound as soon as they are there, each to a folder."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore

CLAIMS = "persistentvolumeclaims"


class ClaimController:
    """Folders below `root`, one for each claim, but for claims that are given one by name."""

    def __init__(self, root: Path, given: Mapping[str, Path]) -> None:
        self._root = root
        self._given = given

    def folder(self, claim: Object) -> Path:
        """Which a pod that mounts it sees."""
        metadata = claim["metadata"]
        own = self._root / f"{metadata['namespace']}-{metadata['name']}"
        return self._given.get(metadata["name"], own)

    def reconcile(self, store: ObjectStore, now: datetime) -> None:
        for claim in store.select(CLAIMS):
            if claim.get("status", {}).get("phase") == "Bound":
                continue
            self.folder(claim).mkdir(parents=True, exist_ok=True)
            spec, metadata = claim["spec"], claim["metadata"]
            status = {
                "phase": "Bound",
                "accessModes": spec.get("accessModes", []),
                "capacity": (spec.get("resources") or {}).get("requests", {}),
            }
            store.set_status(CLAIMS, metadata["namespace"], metadata["name"], status)
