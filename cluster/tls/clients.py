"""The certificates of the ports of clients, as a router's options name them."""

from __future__ import annotations

from pathlib import Path

from cluster.common_options import TlsOptions
from cluster.tls.files import CertificateFiles
from cluster.tls.watched import WatchedCertificates


def clients_certificates(options: TlsOptions) -> WatchedCertificates | None:
    """None: clients are answered in the clear. Raises ConfigError for files that are of no use."""
    if options.tls_cert is None or options.tls_key is None:
        return None
    chain, key, authority = (
        None if named is None else Path(named).expanduser()
        for named in (options.tls_cert, options.tls_key, options.tls_client_ca)
    )
    assert chain is not None and key is not None
    return WatchedCertificates(CertificateFiles(chain, key, authority))
