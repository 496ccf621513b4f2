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


def program(folder: Path, name: str, says: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\necho '{says}'\n")
    (folder / name).chmod(0o755)


def test_make_goes_on_without_redis_where_nobody_is_root_or_has_apt(tmp_path: Path) -> None:
    make, sed = shutil.which("make"), shutil.which("sed")
    if make is None or sed is None:
        pytest.skip("no make")
    (tmp_path / "sed").symlink_to(sed)
    for user in ("1000", "0"):  # root of a machine without apt-get
        program(tmp_path, "id", user)
        command = [make, "-s", f"VENV={tmp_path / 'venv'}", "redis-server"]
        environ = {"PATH": str(tmp_path)}
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "no redis-server: its tests are skipped\n"


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
    assert fetch_helm.main() == 1 and not (tmp_path / "helm").exists()
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
