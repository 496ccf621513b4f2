"""The certificates that the processes of one fleet show each other: one folder, by one variable.

    $SPLITSERVE_FLEET_TLS/cert.pem, key.pem     of this process, or the same of all
                          ca.pem                the fleet's own authority

Each end of a connection asks the other for a certificate of that authority. Workers come and go
with their addresses, so a certificate is for a name that all have, and no address.
"""

from __future__ import annotations

import os
from pathlib import Path

from cluster.tls.files import CertificateFiles, check_among_peers
from cluster.tls.watched import WatchedCertificates

FLEET_TLS = "SPLITSERVE_FLEET_TLS"
FLEET_NAME = "splitserve-fleet"


def has_fleet_tls() -> bool:
    """Whether this process's surroundings name the folder."""
    return bool(os.environ.get(FLEET_TLS))


def fleet_certificates() -> WatchedCertificates | None:
    """Of this process, as its surroundings say; None: the fleet speaks without TLS. Raises
    ConfigError for a folder whose certificates no other process with them would accept."""
    named = os.environ.get(FLEET_TLS)
    if not named:
        return None
    folder = Path(named).expanduser()
    files = CertificateFiles(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
    return WatchedCertificates(files, check_among_peers(FLEET_NAME))
