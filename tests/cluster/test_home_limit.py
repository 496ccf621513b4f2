"""A home that may hold less than its disk: what is over it ends the pod, so nothing is fetched."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli.doctor.machine import _cache
from cluster.errors import ConfigError, DiskFull
from cluster.home import home_limit_bytes
from cluster.models.files.disk import free_bytes, require_free

_LIMIT = "SPLITSERVE_HOME_LIMIT_BYTES"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a limit of a thousand bytes, of which 300 are used."""
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "models" / "file").write_bytes(bytes(300))
    monkeypatch.setenv("SPLITSERVE_HOME", str(home))
    monkeypatch.setenv(_LIMIT, "1000")
    return home


def test_what_a_home_may_still_hold_is_what_is_free_there(home: Path) -> None:
    assert free_bytes(home / "models" / "hub" / "new") == 700
    require_free(home / "models", 700)
    with pytest.raises(DiskFull, match=r"700 bytes are free, 701 are needed.*model\.cache\.size"):
        require_free(home / "models", 701)


def test_a_home_that_is_over_its_limit_has_nothing_free(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(_LIMIT, "200")
    assert free_bytes(home) == 0


def test_the_disk_counts_where_it_has_less_and_elsewhere(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk = free_bytes(tmp_path / "elsewhere")
    assert on_disk > 1000
    monkeypatch.setenv(_LIMIT, str(sys.maxsize))
    assert free_bytes(home) < sys.maxsize - 300
    monkeypatch.delenv(_LIMIT)
    assert free_bytes(home) > 1000


def test_doctor_says_what_is_left_of_the_limit(home: Path) -> None:
    assert "700 B free" in _cache().text


def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_LIMIT, "20Gi")
    with pytest.raises(ConfigError, match="write a number of bytes"):
        home_limit_bytes()
