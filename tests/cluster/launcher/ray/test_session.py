"""A Ray of our own that cannot begin, or does not end. No Ray."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.errors import ConfigError
from cluster.launcher.ray import session
from cluster.launcher.ray.open_ray import OpenRay
from cluster.launcher.ray.session import RaySession
from cluster.process.owned_folder import OwnedFolder


def test_a_machine_that_gives_no_folder_is_told_of_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(*where: object) -> None:
        raise OSError(30, "Read-only file system", "/tmp")

    monkeypatch.setattr(session.OwnedFolder, "make", refuses)
    with pytest.raises(ConfigError, match=r"Read-only.*--ray-address") as refused:
        RaySession._started(object(), num_ranks=1)
    assert refused.value.param == "ray_address"


def test_a_ray_of_our_own_has_no_dashboard_and_stays_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reaches a dashboard runs programs: CVE-2023-48022, CVE-2025-62593."""
    asked = dict[str, object]()
    context = SimpleNamespace(gcs_address="", get_node_id=lambda: "")
    ray = SimpleNamespace(get_runtime_context=lambda: context)
    folder = SimpleNamespace(path=tmp_path)
    monkeypatch.setattr(session.OwnedFolder, "make", lambda *where: folder)
    monkeypatch.setattr(session, "_init", lambda ray, failed, **options: asked.update(options))
    RaySession._started(ray, num_ranks=1)
    assert (asked["include_dashboard"], asked["address"]) == (False, "local")


def test_a_ray_that_others_join_is_at_the_address_that_was_said_and_offers_its_own_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = dict[str, object]()

    def begins(ray: object, failed: str, **options: object) -> None:
        asked.update(options, head_port=os.environ["RAY_GCS_SERVER_PORT"])

    context = SimpleNamespace(gcs_address="", get_node_id=lambda: "")
    ray = SimpleNamespace(get_runtime_context=lambda: context)
    monkeypatch.setattr(session.OwnedFolder, "make", lambda *where: SimpleNamespace(path=tmp_path))
    monkeypatch.setattr(session, "_init", begins)
    hosts = OpenRay(host="10.0.0.5", port=6379, num_hosts=2)
    RaySession._started(ray, num_ranks=3, hosts=hosts)
    assert (asked["_node_ip_address"], asked["head_port"]) == ("10.0.0.5", "6379")
    assert asked["resources"] == {"splitserve_rank": 2.0} and asked["include_dashboard"] is False


def test_a_ray_that_does_not_end_is_left_and_its_folder_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CLOSE_TIMEOUT_S", 0.1)
    context, ends = SimpleNamespace(gcs_address="", get_node_id=lambda: ""), threading.Event()
    ray = SimpleNamespace(get_runtime_context=lambda: context, shutdown=ends.wait)
    opened = RaySession(ray, is_own=True, folder=OwnedFolder.make("ray-", tmp_path))
    opened.close()
    opened.close()
    assert list(tmp_path.iterdir()) == []
    ends.set()
