"""An authority of a test's own, and folders of certificates from it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from cluster.tls.files import CertificateFiles
from cluster.tls.fleet import FLEET_NAME

_DAY = timedelta(days=1)


class Authority:
    """Each is another's stranger."""

    def __init__(self) -> None:
        self._ca = trustme.CA()

    def fill(self, folder: Path, name: str = FLEET_NAME, *, expired: bool = False) -> Path:
        """Writes a new certificate, its key, and the authority's; what was there is replaced."""
        until = datetime.now(UTC) + (-_DAY if expired else _DAY)
        made = self._ca.issue_cert(name, not_before=until - 9 * _DAY, not_after=until)
        folder.mkdir(parents=True, exist_ok=True)
        chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
        (folder / "cert.pem").write_bytes(chain)
        (folder / "key.pem").write_bytes(made.private_key_pem.bytes())
        self._ca.cert_pem.write_to_path(folder / "ca.pem")
        return folder


def files_in(folder: Path) -> CertificateFiles:
    """Of a folder that an authority has filled."""
    return CertificateFiles(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
