"""Where the gRPC door listens, and what strangers may do there, as a router's options have it."""

from __future__ import annotations

from cluster.config import RouterOptions
from cluster.tls.servers import fleet_credentials, server_credentials
from cluster.tls.watched import WatchedCertificates
from router.front.limits import Descriptors
from router.grpc_front.grpc_door import GrpcPort
from router.grpc_front.public_port import PublicPort

SLACK_BYTES = 1024 * 1024
"""Over the limit of a request, a gRPC message is still received, to be refused in our own words."""


def grpc_ports(
    options: RouterOptions, certificates: WatchedCertificates | None
) -> tuple[GrpcPort, GrpcPort | None]:
    """Everybody's, and the fleet's. Raises ConfigError for certificates that are of no use."""
    of_clients = None if certificates is None else server_credentials(certificates)
    everybodys = GrpcPort(options.grpc_port, of_clients, options.host)
    if options.fleet_port is None:
        return everybodys, None
    return everybodys, GrpcPort(options.fleet_port, fleet_credentials(), options.workers_host)


def public_port_of(options: RouterOptions, descriptors: Descriptors) -> PublicPort:
    """As many bytes of messages as of bodies, and as many calls as connections."""
    max_message_bytes = options.max_body_bytes + SLACK_BYTES
    return PublicPort(
        max_message_bytes=max_message_bytes,
        max_receiving=max(1, options.max_bodies_bytes // max_message_bytes),
        receive_timeout_s=options.header_timeout_s,
        max_streams=descriptors.http,
        max_connections=descriptors.grpc // (1 if options.fleet_port is None else 2),
    )
