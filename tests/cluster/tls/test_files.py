"""Certificates are tried before they are used, and the file at fault is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.tls.files import check_among_peers, server_context
from cluster.tls.fleet import FLEET_NAME
from tests.cluster.tls.authority import Authority, files_in

check_fleet = check_among_peers(FLEET_NAME)


def test_processes_with_one_authority_s_certificates_take_each_other(tmp_path: Path) -> None:
    check_fleet(files_in(Authority().fill(tmp_path)))


@pytest.mark.parametrize(
    ("name", "expired", "why"),
    [(FLEET_NAME, True, "expired"), ("elsewhere", False, f"not valid for '{FLEET_NAME}'")],
)
def test_what_peers_would_refuse_is_refused_at_once(
    name: str, expired: bool, why: str, tmp_path: Path
) -> None:
    Authority().fill(tmp_path, name, expired=expired)
    with pytest.raises(ConfigError, match=rf"cert\.pem is of no use .*{why}"):
        check_fleet(files_in(tmp_path))


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    Authority().fill(tmp_path)
    Authority().fill(tmp_path / "theirs")
    (tmp_path / "theirs" / "ca.pem").replace(tmp_path / "ca.pem")
    with pytest.raises(ConfigError, match=r"cert\.pem .*unable to get local issuer"):
        check_fleet(files_in(tmp_path))


@pytest.mark.parametrize("name", ["cert.pem", "key.pem", "ca.pem"])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nno\n"])
def test_a_file_that_is_none_of_tls_is_named(
    name: str, content: bytes | None, tmp_path: Path
) -> None:
    Authority().fill(tmp_path)
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=f"{name}.* cannot be used for TLS: "):
        server_context(files_in(tmp_path))


def test_a_key_of_another_certificate_is_told(tmp_path: Path) -> None:
    Authority().fill(tmp_path)
    other = Authority().fill(tmp_path / "theirs")
    (other / "key.pem").replace(tmp_path / "key.pem")
    with pytest.raises(ConfigError, match="key values mismatch"):
        server_context(files_in(tmp_path))
