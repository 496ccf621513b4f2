"""Whom `make check` asks whether the pins can be installed."""

from __future__ import annotations

import pytest

from tests.packaging.resolve import environment_of

MIRROR, CERTIFICATE = "https://mirror.example/simple", "/etc/ssl/mirror.pem"


@pytest.mark.parametrize("index", ["PIP_INDEX_URL", "UV_DEFAULT_INDEX"])
@pytest.mark.parametrize("certificate", ["PIP_CERT", "SSL_CERT_FILE"])
def test_a_mirror_that_pip_or_uv_is_told_of_is_asked(index: str, certificate: str) -> None:
    found = environment_of({index: MIRROR, certificate: CERTIFICATE})
    assert found == {"UV_DEFAULT_INDEX": MIRROR, "SSL_CERT_FILE": CERTIFICATE}


def test_the_word_to_uv_itself_comes_first() -> None:
    found = environment_of({"UV_DEFAULT_INDEX": MIRROR, "PIP_INDEX_URL": "https://other.example"})
    assert found == {"UV_DEFAULT_INDEX": MIRROR}


def test_wheels_and_further_indexes_of_this_machine_prove_nothing() -> None:
    of_this_machine = {
        "PIP_FIND_LINKS": "/opt/wheels",
        "PIP_EXTRA_INDEX_URL": MIRROR,
        "UV_FIND_LINKS": "/opt/wheels",
        "UV_INDEX": MIRROR,
    }
    assert environment_of({"PATH": "/bin", **of_this_machine}) == {"PATH": "/bin"}
