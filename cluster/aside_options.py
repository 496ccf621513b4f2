"""Where a router is spoken to by those who are not its clients."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.option_field import host_option, option


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideOptions:
    """Of one router: the address of its control plane, and Prometheus' port there."""

    fleet_host: str | None = host_option(
        None,
        "address at which --fleet-port and --fleet-metrics-port listen; default: --host, and for "
        "serve loopback where all of its workers are on this machine",
    )
    fleet_metrics_port: int | None = option(
        None,
        "port at --fleet-host at which Prometheus asks without a token; 0 takes a free one; "
        "default: metrics are at --port alone, and where strangers come there for the join token",
        low=0,
        high=65_535,
    )
