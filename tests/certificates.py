"""The world's certificates, read once.

Every client of httpx reads them anew, which takes 20 ms of a core. Tests make clients by the
hundred, and ask a fleet that starts five times a second; all of them speak to this machine alone.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Any

from httpx._transports import default

_make = default.create_ssl_context


def read_certificates_once() -> None:
    """From now on, in this process: once for each place that the environment names."""
    default.create_ssl_context = _context


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is not True or cert is not None:
        return _make(verify=verify, cert=cert, trust_env=trust_env)
    places = [os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")]
    return _of_the_world(trust_env, *places)


@cache
def _of_the_world(trust_env: bool, *places: str | None) -> ssl.SSLContext:
    return _make(trust_env=trust_env)
