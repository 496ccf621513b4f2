"""The images that the chart names, built for real: what is in them, and that another build makes
the same."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.deploy.images.differences import differences
from tests.deploy.images.storage import Storage

pytestmark = [pytest.mark.minutes, pytest.mark.timeout(3000, func_only=True)]
_MOST_OF_THE_ROUTER_BYTES = 300 * 10**6
_NOT_SHIPPED = ("run/secrets", "src", "wheels", "root/.cache", "root/.config", "opt/wheels")


def files_of(root: Path) -> list[Path]:
    """All that are regular, of the environment that is installed."""
    found = (root / "opt").rglob("*")
    return [path for path in found if path.is_file() and not path.is_symlink()]


def test_the_router_s_image_is_small_and_has_no_torch(storage: Storage, router: str) -> None:
    assert storage.pulled_bytes(router) < _MOST_OF_THE_ROUTER_BYTES
    said = storage.podman(
        *("run", "--rm", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--read-only"),
        *("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=512:512", "--network", "none"),
        *("--entrypoint", "python", router, "-c"),
        "import importlib.util as u; print([n for n in ('torch', 'nixl_cu13') if u.find_spec(n)])",
    )
    assert said.strip() == "[]"


@pytest.mark.parametrize("name", ["router", "worker"])
def test_what_a_build_is_told_of_this_machine_is_not_in_the_image(
    storage: Storage, name: str, request: pytest.FixtureRequest
) -> None:
    image = request.getfixturevalue(name)
    found = storage.inspected(image)
    told = json.dumps([found["Config"], found["History"]])
    local = [str(folder) for folder in storage.pip.folders]
    assert not [word for word in (*local, "pip.conf", "PIP_") if word in told]
    with storage.mounted(image) as root:
        assert [path for path in _NOT_SHIPPED if (root / path).exists()] == []
        assert sorted(path.name for path in (root / "opt").iterdir()) == ["splitserve"]
        assert not [path for path in local if (root / path.lstrip("/")).exists()]
        names = [f"{folder}/".encode() for folder in local]
        small = [path for path in files_of(root) if path.stat().st_size < 2**20]
        assert [path for path in small if any(name in path.read_bytes() for name in names)] == []


def test_nobody_but_root_may_write_to_what_is_installed(storage: Storage, worker: str) -> None:
    with storage.mounted(worker) as root:
        others = stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID
        wrong = [p for p in files_of(root) if p.stat().st_uid != 0 or p.stat().st_mode & others]
        assert wrong == []
        assert os.stat(root / "var/cache/splitserve").st_uid == 65532


@pytest.mark.parametrize(
    ("target", "name"), [("router", "router"), ("worker-cpu", "worker")], ids=["router", "worker"]
)
def test_two_builds_of_one_tree_make_one_digest(
    storage: Storage, target: str, name: str, request: pytest.FixtureRequest
) -> None:
    first = request.getfixturevalue(name)
    digest = storage.build(target, f"localhost/again:{name}")
    if digest == storage.inspected(first)["Digest"]:
        return
    with storage.mounted(first) as one, storage.mounted(f"localhost/again:{name}") as other:
        pytest.fail(f"of two builds these differ: {differences(one, other)}")
