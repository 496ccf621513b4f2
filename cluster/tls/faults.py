"""Why two processes do not come together by TLS, in words for whoever connects.

gRPC says what it has found in a peer's certificate, deep in a sentence, and nothing of what the
peer has found in ours. So our own is looked at again.
"""

from __future__ import annotations

import re

from cluster.tls.fleet import FLEET_NAME, FLEET_TLS
from cluster.tls.watched import WatchedCertificates

_REFUSED = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([\w ]+)")
_ANOTHER_NAME = "Hostname Verification"
_NO_TLS = "WRONG_VERSION_NUMBER"
_HUNG_UP = ("Socket closed", "Connection reset", "Broken pipe", "alert")


def tls_fault(said: str, address: str, own: WatchedCertificates) -> str | None:
    """Of a connection to `address` that gRPC could not make; `said`: its words. None where they
    are of something else."""
    if refused := _REFUSED.search(said):
        return f"the certificate of {address} is not good here: {refused[1]}"
    if _ANOTHER_NAME in said:
        return f"the certificate of {address} is not for the name {FLEET_NAME}"
    if _NO_TLS in said:
        return f"{address} does not speak TLS; give all processes of a fleet their {FLEET_TLS}"
    if any(word in said for word in _HUNG_UP):
        fault = own.own_fault()
        return None if fault is None else f"{address} has hung up: {fault}"
    return None
