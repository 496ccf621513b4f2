"""Programs that tests ask for, on machines where they cannot be had: skipped, and said."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy import chart, fetch_helm
from tests.packaging.test_makefile import ROOT
from tests.redis_server import redis_program

NEEDED = {"SPLITSERVE_NEED_PROGRAMS": "1"}


def program(folder: Path, name: str, says: str, *, code: int = 0) -> None:
    (folder / name).write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    (folder / name).chmod(0o755)


def made(tmp_path: Path, target: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """With the programs in `tmp_path`, and those few that make itself takes."""
    if (make := shutil.which("make")) is None:
        pytest.skip("no make")
    for name in ("sed", "cat", "touch"):
        found = shutil.which(name)
        assert found is not None
        if not (tmp_path / name).exists():
            (tmp_path / name).symlink_to(found)
    command = [make, "-s", f"VENV={tmp_path / 'venv'}", target]
    environ["PATH"] = str(tmp_path)
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)


@pytest.mark.parametrize("environ", [{}, NEEDED], ids=["may", "needed"])
def test_make_goes_on_without_redis_where_nobody_is_root_or_has_apt(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    for user in ("1000", "0"):  # root of a machine without apt-get
        program(tmp_path, "id", user)
        done = made(tmp_path, "redis-server", **environ)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "no redis-server: its tests are skipped\n"


def test_an_installation_of_redis_that_fails_ends_what_needs_it_and_nothing_else(
    tmp_path: Path,
) -> None:
    program(tmp_path, "id", "0")
    program(tmp_path, "apt-get", "the index is away", code=100)
    done = made(tmp_path, "redis-server")
    assert done.returncode == 0 and done.stdout.endswith("no redis-server: its tests are skipped\n")
    done = made(tmp_path, "redis-server", **NEEDED)
    assert done.returncode != 0 and "redis-server could not be had" in done.stderr
    program(tmp_path, "apt-get", "")
    assert made(tmp_path, "redis-server", **NEEDED).returncode == 0


def environment_in(tmp_path: Path, *, helm_code: int) -> str:
    """As if it had been made; its Python does not get helm. The target that fetches helm."""
    binaries = tmp_path / "venv" / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    (binaries / "python").write_text(
        f'#!/bin/sh\ntest "$1" = -c && echo 3.11 && exit 0\nexit {helm_code}\n'
    )
    (binaries / "python").chmod(0o755)
    (tmp_path / "venv" / ".made-for").write_text("3.11 worker\n")
    (tmp_path / "venv" / ".installed").touch()
    return str(tmp_path / "venv" / "helm" / "helm")


def test_a_fetch_of_helm_that_fails_ends_what_needs_it_and_nothing_else(tmp_path: Path) -> None:
    target = environment_in(tmp_path, helm_code=1)
    done = made(tmp_path, target)
    assert done.returncode == 0 and done.stdout == "no helm: its tests are skipped\n"
    done = made(tmp_path, target, **NEEDED)
    assert done.returncode != 0 and "helm could not be had" in done.stderr
    program(tmp_path, "helm", "the machine's own")
    assert made(tmp_path, target, **NEEDED).returncode == 0


def test_helm_that_is_not_built_for_a_machine_ends_nothing(tmp_path: Path) -> None:
    target = environment_in(tmp_path, helm_code=fetch_helm.NOT_BUILT)
    done = made(tmp_path, target, **NEEDED)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "no helm: its tests are skipped\n"


def test_what_must_pass_before_anything_lands_asks_for_the_programs() -> None:
    run = (ROOT / ".ci" / "run").read_text()
    assert 'export SPLITSERVE_NEED_PROGRAMS="${SPLITSERVE_NEED_PROGRAMS-1}"' in run


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (None, "redis-server is not here"),
        ("Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1", "is 6.0, .* takes 6.2"),
    ],
)
def test_without_a_redis_of_its_kind_a_test_is_skipped_with_the_reason(
    says: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if says is not None:
        program(tmp_path, "redis-server", says)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match=why):
        redis_program()


@pytest.mark.parametrize("says", ["Redis server v=7.0.15 sha=0", "Valkey server v=8.0.1 sha=0"])
def test_one_that_is_new_enough_is_taken(
    says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "redis-server", says)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert redis_program() == str(tmp_path / "redis-server")


def test_helm_is_not_fetched_for_a_machine_that_could_not_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(sys, "argv", ["fetch_helm", str(tmp_path / "helm")])
    assert fetch_helm.main() == fetch_helm.NOT_BUILT and not (tmp_path / "helm").exists()
    assert "this machine is aarch64" in capsys.readouterr().out


def test_without_helm_a_test_of_the_chart_is_skipped_or_takes_the_machines_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPLITSERVE_HELM", str(tmp_path / "none" / "helm"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="helm is not here"):
        chart.helm("template")
    program(tmp_path, "helm", "their own")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.defpath}")
    assert chart.helm("template").stdout == "their own\n"
