"""An address of the store is read whole, and its password is told to nobody."""

from __future__ import annotations

import pytest

from cluster.errors import ConfigError
from router.store.address import read_address


def test_what_is_left_out_has_a_default() -> None:
    address = read_address("redis://here")
    assert (address.host, address.port, address.db) == ("here", 6379, 0)
    assert (address.username, address.password, address.is_tls) == (None, None, False)


def test_every_part_is_read() -> None:
    address = read_address("rediss://me:p%40ss@[::1]:7000/3?ssl_ca_certs=/etc/ca.pem")
    assert (address.host, address.port, address.db) == ("::1", 7000, 3)
    assert (address.username, address.password, address.is_tls) == ("me", "p@ss", True)
    assert address.tls_files == {"ssl_ca_certs": "/etc/ca.pem"}


def test_a_password_is_in_no_text_of_it() -> None:
    address = read_address("redis://me:s3cret@here:7000/3")
    assert str(address) == "redis://here:7000/3"
    assert "s3cret" not in repr(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://:s3cret@here",
        "here:6379",
        "redis://",
        "redis://:s3cret@here:port",
        "redis://:s3cret@here:99999",
        "redis://:s3cret@here/first",
        "redis://:s3cret@here?ssl_ca_certs=/ca.pem",
        "rediss://:s3cret@here?max_connections=s3cret",
        "redis://[s3cret",
    ],
)
def test_what_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_address(url)
    assert "redis://[USER:PASSWORD@]HOST" in refused.value.message
    assert "s3cret" not in refused.value.message
