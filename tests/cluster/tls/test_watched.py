"""New certificates are taken when they are good, and else told about once."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.tls import watched
from cluster.tls.files import CertificateFiles, server_context
from cluster.tls.watched import LOOK_INTERVAL_S, WatchedCertificates
from tests.cluster.tls.authority import Authority, files_in


class Told:
    """A log."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.reasons: list[str] = []

    def error(self, event: str, why: str = "", **_facts: str) -> None:
        self.lines.append(event)
        self.reasons.append(why)

    info = warning = error


class Time:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    log = Told()
    monkeypatch.setattr(watched, "_log", log)
    return log


@pytest.fixture
def time() -> Time:
    return Time()


def certificates(folder: Path, time: Time) -> WatchedCertificates:
    return WatchedCertificates(files_in(folder), server_context, clock=time)


def test_files_that_have_changed_are_taken_at_the_next_look(
    tmp_path: Path, told: Told, time: Time
) -> None:
    ours = Authority()
    known = certificates(ours.fill(tmp_path), time)
    first = known.current()
    ours.fill(tmp_path)
    assert known.current() is first, "files are not looked at with every handshake"
    time.now_s += LOOK_INTERVAL_S
    second = known.current()
    assert second.chain == (tmp_path / "cert.pem").read_bytes() != first.chain
    time.now_s += LOOK_INTERVAL_S
    assert known.current() is second
    assert told.lines == ["certificates have changed"]


def test_files_that_are_of_no_use_change_nothing_and_are_told_once(
    tmp_path: Path, told: Told, time: Time
) -> None:
    known = certificates(Authority().fill(tmp_path), time)
    first = known.current()
    (tmp_path / "key.pem").write_text("half a ke")
    for _ in range(3):
        time.now_s += LOOK_INTERVAL_S
        assert known.current() is first
    assert told.lines == ["certificates stay as they were"]


def test_files_that_change_while_they_are_read_are_taken_at_the_next_look(
    tmp_path: Path, told: Told, time: Time
) -> None:
    ours, others = Authority(), Authority()
    changes = [lambda: None, lambda: others.fill(tmp_path), lambda: None]

    def check(files: CertificateFiles) -> ssl.SSLContext:
        context = server_context(files)
        changes.pop(0)()
        return context

    ours.fill(tmp_path)
    known = WatchedCertificates(files_in(tmp_path), check, clock=time)
    first = known.current()
    ours.fill(tmp_path)
    time.now_s += LOOK_INTERVAL_S
    assert known.current() is first, "what was tried is not what was read"
    time.now_s += LOOK_INTERVAL_S
    assert known.current().chain == (tmp_path / "cert.pem").read_bytes() != first.chain
    assert told.lines == ["certificates have changed"]


def test_a_start_without_them_is_an_error(tmp_path: Path, time: Time) -> None:
    with pytest.raises(ConfigError, match=r"cert\.pem"):
        certificates(tmp_path, time)


def test_keys_are_not_shown(tmp_path: Path, time: Time) -> None:
    assert "PRIVATE" not in repr(certificates(Authority().fill(tmp_path), time).current())
