"""gRPC's listeners with certificates, which each handshake takes as they are now."""

from __future__ import annotations

import grpc

from cluster.tls.fleet import fleet_certificates
from cluster.tls.watched import Certificates, WatchedCertificates


def fleet_credentials() -> grpc.ServerCredentials | None:
    """Of this process's port of the fleet; None: it speaks in the clear. Raises ConfigError."""
    watched = fleet_certificates()
    return None if watched is None else server_credentials(watched)


def server_credentials(watched: WatchedCertificates) -> grpc.ServerCredentials:
    """Whoever connects is asked for a certificate where `watched` names an authority."""
    taken = [watched.current()]

    def changed() -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC's threads before each handshake."""
        now = watched.current()
        if now is taken[0]:
            return None
        taken[0] = now
        return _configuration(now)

    asks = taken[0].authority is not None
    return grpc.dynamic_ssl_server_credentials(_configuration(taken[0]), changed, asks)


def _configuration(now: Certificates) -> grpc.ServerCertificateConfiguration:
    pairs = [(now.key, now.chain)]
    return grpc.ssl_server_certificate_configuration(pairs, root_certificates=now.authority)
