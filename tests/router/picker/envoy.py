"""The real Envoy before a picker, as Gateway API's implementations set it up: a filter that asks
the picker, and a cluster of which the picker names the member."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from router.picker.gateway_messages import ENDPOINT, ENDPOINT_NAMESPACE, SUBSET_NAMESPACE

_ENVOY = "SPLITSERVE_ENVOY"
"""Where `make test` has put it."""
_TYPES = "type.googleapis.com/envoy.extensions"


@asynccontextmanager
async def envoy(picker: str, mode: str, folder: Path) -> AsyncIterator[str]:
    """The URL at which its clients ask. `mode`: of bodies. Skips the test where nobody has it."""
    program = os.environ.get(_ENVOY) or shutil.which("envoy")
    if program is None or not Path(program).exists():
        pytest.skip("envoy is not here; `make test` fetches it")
    admin = folder / "admin"
    config = folder / "envoy.yaml"
    config.write_text(yaml.safe_dump(_config(picker, mode)))
    command = [program, "-c", str(config), "--admin-address-path", str(admin)]
    command += ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://{await _listens_at(admin, process, folder / 'log')}"
    finally:
        process.kill()
        process.wait()


async def _listens_at(admin: Path, process: subprocess.Popen[bytes], log: Path) -> str:
    """Once the cluster of the picker has an endpoint that answers."""
    async with asyncio.timeout(60), httpx.AsyncClient() as client:
        while True:
            assert process.poll() is None, log.read_text()
            if admin.exists() and (address := admin.read_text().strip()):
                ready = await client.get(f"http://{address}/ready")
                if ready.status_code == 200:
                    told = (await client.get(f"http://{address}/listeners?format=json")).json()
                    (listener,) = told["listener_statuses"]
                    place = listener["local_address"]["socket_address"]
                    return f"{place['address']}:{place['port_value']}"
            await asyncio.sleep(0.02)


def _config(picker: str, mode: str) -> dict[str, Any]:
    loopback = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    host, _, port = picker.partition(":")
    at_picker = {"socket_address": {"address": host, "port_value": int(port)}}
    return {
        "admin": {"address": loopback},
        "static_resources": {
            "listeners": [{"address": loopback, "filter_chains": [{"filters": [_http(mode)]}]}],
            "clusters": [_picker_cluster(at_picker), _servers(mode)],
        },
    }


def _http(mode: str) -> dict[str, Any]:
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "servers", "timeout": "0s"}}]
    hosts = [{"name": "all", "domains": ["*"], "routes": routes}]
    router = {"@type": f"{_TYPES}.filters.http.router.v3.Router"}
    return {
        "name": "http",
        "typed_config": {
            "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "http",
            "route_config": {"virtual_hosts": hosts},
            "http_filters": [
                {"name": "picker", "typed_config": _ext_proc(mode)},
                {"name": "router", "typed_config": router},
            ],
        },
    }


def _ext_proc(mode: str) -> dict[str, Any]:
    is_duplex = mode == "FULL_DUPLEX_STREAMED"
    trailers = "SEND" if is_duplex else "SKIP"
    return {
        "@type": f"{_TYPES}.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}, "timeout": "30s"},
        "message_timeout": "30s",
        "processing_mode": {
            "request_header_mode": "SEND",
            "request_body_mode": mode,
            "request_trailer_mode": trailers,
            "response_header_mode": "SEND",
            "response_body_mode": mode if is_duplex else "STREAMED",
            "response_trailer_mode": trailers,
        },
        "metadata_options": {
            "forwarding_namespaces": {"untyped": [SUBSET_NAMESPACE]},
            "receiving_namespaces": {"untyped": [ENDPOINT_NAMESPACE]},
        },
    }


def _picker_cluster(address: dict[str, Any]) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": address}}
    protocol = {
        "@type": f"{_TYPES}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    return {
        "name": "picker",
        "type": "STATIC",
        "load_assignment": {"cluster_name": "picker", "endpoints": [{"lb_endpoints": [endpoint]}]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": protocol
        },
    }


def _servers(mode: str) -> dict[str, Any]:
    """One mode by the header, the other by the metadata."""
    by_metadata = {"metadata_key": {"key": ENDPOINT_NAMESPACE, "path": [{"key": ENDPOINT}]}}
    by_header = {"use_http_header": True, "http_header_name": ENDPOINT}
    return {
        "name": "servers",
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "original_dst_lb_config": by_header if mode == "BUFFERED" else by_metadata,
    }
